"""Calls unkey.py 3.2.2, which speaks v2, for each line of standard input, and prints the results.

Arguments: the URL and the key. Each line of the input is a JSON array of an operation and its
arguments; each line of the output is the result, or the exception.
"""

import json
import sys

from unkey.py import Unkey

url, key = sys.argv[1:]
client = Unkey(root_key=key, server_url=url)


def pages(fields):
    """All pages of a list, by the pagination of the client itself."""
    found = []
    page = client.ratelimit.list_overrides(**fields)
    while page is not None:
        found.append(page.result)
        page = page.next()
    return found


OPERATIONS = {
    "limit": lambda fields: client.ratelimit.limit(**fields),
    "multiLimit": lambda fields: client.ratelimit.multi_limit(request=fields),
    "set": lambda fields: client.ratelimit.set_override(**fields),
    "get": lambda fields: client.ratelimit.get_override(**fields),
    "list": pages,
    "delete": lambda fields: client.ratelimit.delete_override(**fields),
}


def to_json(response):
    if isinstance(response, list):
        return [to_json(item) for item in response]
    return response.model_dump(by_alias=True, exclude_none=True)


for line in sys.stdin:
    operation, fields = json.loads(line)
    try:
        outcome = {"result": to_json(OPERATIONS[operation](fields))}
    except Exception as error:
        data = getattr(error, "data", None)
        outcome = {
            "exception": type(error).__name__,
            "message": data.error.detail if data else str(error),
        }
    print(json.dumps(outcome), flush=True)
