"""Calls unkey.py 0.9.0, which speaks v1, for each line of standard input, and prints the results.

Arguments: the URL and the key. Each line of the input is a JSON array of an operation and its
arguments; each line of the output is the result, or the exception.
"""

import json
import sys

from unkey_py import Unkey

url, key = sys.argv[1:]
client = Unkey(bearer_auth=key, server_url=url)
OPERATIONS = {
    "limit": lambda fields: client.ratelimits.limit(request=fields),
    "set": lambda fields: client.ratelimit.ratelimit_set_override(request=fields),
    "get": lambda fields: client.ratelimit.get_override(**fields),
    "list": lambda fields: client.ratelimit.list_overrides(**fields),
    "delete": lambda fields: client.ratelimits.delete_override(request=fields),
}

for line in sys.stdin:
    operation, fields = json.loads(line)
    try:
        response = OPERATIONS[operation](fields).object
        if hasattr(response, "model_dump"):
            response = response.model_dump(by_alias=True, exclude_none=True)
        outcome = {"result": response}
    except Exception as error:
        data = getattr(error, "data", None)
        outcome = {
            "exception": type(error).__name__,
            "message": data.error.message if data else str(error),
        }
    print(json.dumps(outcome), flush=True)
