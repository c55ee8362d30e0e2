"""Findings of Schemathesis that are no faults of weir, each with its reason.

Schemathesis calls `filter_failure` with every finding. All others fail the run.
"""

import json
import re

import schemathesis
from schemathesis import openapi

# Rules that no JSON Schema states, so that a request that violates them matches the schema. A long
# run may reach a maximum.
RULES_BEYOND_SCHEMA = [
    r'"namespaceId" or "namespaceName" is required$',
    r'"burst" must be an integer from 1 to the limit',
    r'"identifier" must be a CIDR block (such as|in its canonical form, )',
    r'no request has (an identifier|the identifier) ',
    r'"expires" must be a Unix time in ms, in the future',
    r'"reset" must be the "reset" in the response to a check with this duration',
    r'"cost" must be the tokens that were used; got ',
    r'"costs" must be an array of \d+ costs, one for each check of the reservation; got ',
    r'"checks" must not have "\w+" beside it; got both$',
    r'"start" must be before "end"; got',
    r'"start" must not be after "end"; got',
    r'the range from "start" to "end" must have at most \d+ (hours|points);',
    r"the maximum of \d+ (keys|namespaces|overrides (without a wildcard and blocks|with a wildcard or a CIDR block)) is reached",
]


def error_message(response):
    """The message of an error of v1 or v2; '' for any other response."""
    try:
        error = json.loads(response.content)["error"]
        return error.get("message") or error["detail"]
    except (ValueError, KeyError, TypeError, AttributeError):
        return ""


def violates_rule_beyond_schema(failure, case, response):
    """The request has the form that the schema says, and the message names the other rule."""
    if not isinstance(failure, openapi.checks.RejectedPositiveData):
        return False
    # Checks of a batch have their index before the message.
    message = re.sub(r"^(overrides|checks)?\[\d+\]: ", "", error_message(response))
    return response.status_code == 400 and any(
        re.match(rule, message) for rule in RULES_BEYOND_SCHEMA
    )


def is_reservation_without_a_check(failure, case, response):
    """The fields of a check are required, unless the request has a list of checks."""
    return (
        isinstance(failure, openapi.checks.RejectedPositiveData)
        and case.path == "/v1/ratelimits.reserve"
        and response.status_code == 400
        and "checks" not in case.body
        and re.match(r'"(identifier|limit|duration|cost)" is required: ', error_message(response))
        is not None
    )


def is_too_large(failure, case, response):
    """A valid request may be too large, and for an invalid one Schemathesis expects another code."""
    kinds = (
        openapi.checks.RejectedPositiveData,
        schemathesis.core.failures.AcceptedNegativeData,
    )
    maximum = re.match(r"the body must be at most (\d+) bytes$", error_message(response))
    return (
        isinstance(failure, kinds)
        and response.status_code == 413
        and maximum is not None
        and len(response.request.body) > int(maximum[1])
    )


def lacks_authorization_in_v2(failure, case, response):
    """v2 answers 400, not 401, if the header is missing. The document says so, as Unkey's does."""
    if not case.path.startswith("/v2/"):
        return False
    if isinstance(failure, openapi.checks.MissingHeaderNotRejected):
        return failure.status_code == 400
    if isinstance(failure, openapi.checks.IgnoredAuth):
        return "`400 Bad Request`" in failure.message and "invalid" not in failure.message
    return False


def is_any_method(failure, case, response):
    """Gateways send a check with the method of their client's request (`x-any-method`)."""
    is_gateway_check = case.operation.definition.raw.get("x-any-method") is True
    return is_gateway_check and isinstance(failure, openapi.checks.UnsupportedMethodResponse)


def is_denial_for_nginx(failure, case, response):
    """nginx ignores the body of a 403, so a denial has none; a missing permission has one."""
    kinds = (
        openapi.checks.MissingContentType,
        openapi.checks.ContentDeserializationError,
        schemathesis.core.failures.MalformedJson,
    )
    return (
        isinstance(failure, kinds)
        and case.path == "/v1/auth-request/{namespace}"
        and response.status_code == 403
        and "ratelimit-policy" in response.headers
        and response.content == b""
    )


def is_from_http_parser(failure, case, response):
    """uWebSockets.js answers broken HTTP itself, in HTML, before weir sees the request."""
    return (
        response.status_code in (400, 431, 505)
        and "x-request-id" not in response.headers
        and b"uWebSockets" in response.content
    )


EXCEPTIONS = [
    violates_rule_beyond_schema,
    is_reservation_without_a_check,
    is_too_large,
    lacks_authorization_in_v2,
    is_any_method,
    is_denial_for_nginx,
    is_from_http_parser,
]


@schemathesis.hook
def filter_failure(context, failure, case, response):
    return not any(is_exception(failure, case, response) for is_exception in EXCEPTIONS)
