"""Calls unkey.py 3.2.2, which speaks v2, as it is told on standard input, and writes the results.

Arguments: the URL and the key. Each line of the input is a JSON array of an operation and its
arguments; each line of the output is the body of the answer, or the exception.
"""

import json
import sys

from unkey.py import Unkey

url, key = sys.argv[1:]
client = Unkey(root_key=key, server_url=url)


def pages(fields):
    """All pages of a list, as the client itself goes from one to the next."""
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


def shown(answer):
    if isinstance(answer, list):
        return [shown(item) for item in answer]
    return answer.model_dump(by_alias=True, exclude_none=True)


for line in sys.stdin:
    operation, fields = json.loads(line)
    try:
        result = {"answer": shown(OPERATIONS[operation](fields))}
    except Exception as error:
        data = getattr(error, "data", None)
        result = {
            "exception": type(error).__name__,
            "message": data.error.detail if data else str(error),
        }
    print(json.dumps(result), flush=True)
