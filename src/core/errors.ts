/**
 * The errors of the API: the code, HTTP status, causes and remedy of each. The pages of the server
 * under /docs/errors, docs/errors.md and the OpenAPI document are generated from this table.
 */

import {
  ANALYTICS_SEARCHES_MAX,
  BODY_MAX_BYTES,
  EXACT_OVERRIDES_MAX,
  INFIX_OVERRIDES_MAX,
  KEYS_MAX,
  NAMESPACES_MAX,
  WILDCARD_OVERRIDES_MAX,
} from './constants.ts';
import type { ExitCode } from './exit.ts';

/** The texts are sentences of Markdown with inline code only. */
export interface ErrorKind {
  status: string;
  /** The status in v2 if it differs. */
  inV2?: string;
  title: string;
  causes: readonly string[];
  remedy: string;
}

export const ERRORS = {
  BAD_REQUEST: {
    status: '400 Bad Request',
    title: 'The request is invalid.',
    causes: [
      'A field of the body or of the query is missing, has another type or is out of range.',
      'The body is not JSON in UTF-8, or the query is not percent-encoded UTF-8.',
      'In v2 the body has an unknown field.',
      'In v2 the header `Authorization` is missing or malformed.',
      'The header `Content-Length` or `Transfer-Encoding` is invalid.',
      `The server has the maximum number of namespaces (${NAMESPACES_MAX}), of keys ` +
        `(${KEYS_MAX}), of overrides without a wildcard (${EXACT_OVERRIDES_MAX}) or with one ` +
        `or a CIDR block (${WILDCARD_OVERRIDES_MAX}).`,
      `The namespace has the maximum number of overrides with text between wildcards ` +
        `(${INFIX_OVERRIDES_MAX}), or the namespace patterns together have it.`,
      'No request of the policy of the namespace can have the identifier of the override.',
    ],
    remedy:
      'The message names the first invalid field, the value received and the values accepted. In ' +
      'v2 it is `detail`, and `errors` has the location and a fix. Nothing was counted or changed.',
  },
  UNAUTHORIZED: {
    status: '401 Unauthorized',
    inV2: '401; a missing or malformed header `Authorization` is a 400 `BAD_REQUEST`',
    title: 'The request has no valid API key.',
    causes: [
      'The header `Authorization` is missing or not of the form `Bearer <key>`.',
      'The key was not created on this server, has expired, or was revoked.',
      'A gateway check on the port for checks has no valid key in the header `X-Weir-Key`.',
    ],
    remedy:
      'Send the header `Authorization: Bearer <key>` with a key that exists, has not expired and ' +
      'is not revoked. The listener for gateways requires no key.',
  },
  FORBIDDEN: {
    status: '403 Forbidden',
    title: 'The API key lacks a permission.',
    causes: [
      'The key has the permission of the operation neither for this namespace nor for all of them.',
      'The request names a pattern of namespaces, which requires a permission for all namespaces.',
      'A new key would get a permission that the key of the request does not have.',
    ],
    remedy:
      'The message names the permissions that allow the request. Use a key that has one of them.',
  },
  NOT_FOUND: {
    status: '404 Not Found',
    title: 'The path or the object does not exist.',
    causes: [
      'The server has no such path. Paths are case-sensitive.',
      'The override, key or namespace does not exist.',
      'The reservation or lease does not exist, ended more than 10 minutes ago, or is in a ' +
        'namespace in which the key lacks the permission `limit`.',
      'The namespace is new, and the key lacks `ratelimit.*.create_namespace`.',
      'A gateway check names a namespace without a policy, or a gateway that is not in the policy.',
    ],
    remedy:
      'The message names the path or the object that does not exist. A namespace is created by ' +
      'its first check if the key has the permission to create it.',
  },
  METHOD_NOT_ALLOWED: {
    status: '405 Method Not Allowed',
    title: 'The path does not accept this method.',
    causes: ['The path exists with another method, for example POST instead of GET.'],
    remedy: 'Use the method in the header `Allow`.',
  },
  CONFLICT: {
    status: '409 Conflict',
    inV2: 'not used',
    title: 'The state of the service does not allow this request.',
    causes: [
      'The key to revoke is that of `WEIR_ROOT_KEY`.',
      'The key to revoke is the only one with the permission `*`, or the last of them to expire.',
      'The `requestId` is that of a request that was allowed with other parameters less than ' +
        '60 s ago.',
    ],
    remedy:
      'The message names the cause. For the last key with `*`, create another one first. For a ' +
      '`requestId`, repeat the parameters of the first request, or give another `requestId`.',
  },
  PAYLOAD_TOO_LARGE: {
    status: '413 Payload Too Large',
    title: 'The body is too large.',
    causes: [
      `The body has more bytes than the operation accepts: ${BODY_MAX_BYTES} for most operations.`,
    ],
    remedy: 'The message names the maximum. Send a smaller body; often `meta` is the large field.',
  },
  UNSUPPORTED_MEDIA_TYPE: {
    status: '415 Unsupported Media Type',
    title: 'The header Content-Type is not JSON.',
    causes: [
      'The request has another media type. `curl -d` sends one, unless `--json` replaces `-d`.',
    ],
    remedy: 'Send the header `Content-Type: application/json`, or no `Content-Type`.',
  },
  INTERNAL_SERVER_ERROR: {
    status: '500 Internal Server Error',
    title: 'An internal error occurred.',
    causes: ['weir has a defect, or a file of its installation is missing.'],
    remedy:
      'You may send the request again. The log has the cause: search it for the `requestId` of ' +
      'the response. Report a defect with these lines of the log.',
  },
  SERVICE_UNAVAILABLE: {
    status: '503 Service Unavailable',
    title: 'The service cannot process the request now.',
    causes: [
      'The maximum number of connections is open: `WEIR_CONNECTIONS`.',
      'Too many bodies are incomplete, or too many operations or changes wait.',
      `${ANALYTICS_SEARCHES_MAX} searches for identifiers are running, which is the maximum.`,
      'weir cannot write to the store, for example on a full disk. Checks continue, changes fail.',
      'With several machines: the registry in Redis cannot be changed at the moment.',
      'With several machines: Redis does not respond, and the request is for a reservation or a ' +
        'lease, or has a `requestId`. With a `requestId` also while Redis has no memory left.',
      'A lease cannot be granted or renewed with `WEIR_ON_LOST_LEASES=wait`, because weir cannot ' +
        'write its lease horizon to the disk.',
      'A shard worker failed, and the next one did not finish the work within 2 s.',
      'A refund, a reset, an inspection or an explanation waited 2 s for earlier asynchronous ' +
        'checks.',
    ],
    remedy:
      'Send the request again after the seconds in the header `Retry-After`. The message names ' +
      'the reason, and says whether a check may have been counted, or something changed.',
  },
} as const satisfies Record<string, ErrorKind>;

export type ErrorCode = keyof typeof ERRORS;

/** The HTTP status of an error, as a number. */
export function statusOf(code: ErrorCode): number {
  return Number.parseInt(ERRORS[code].status, 10);
}

/** The location of an error in the header with the key. */
export const AUTHORIZATION_LOCATION = 'header.authorization';

/** Where in a request an error is, and how to fix it. */
export interface FaultLocation {
  /** As in `body.limit`, `body[3].limit`, or AUTHORIZATION_LOCATION. */
  location: string;
  fix?: string;
}

/** An error that a client gets. Thrown inside a request; its route sends the response. */
export class ApiError extends Error {
  readonly code: ErrorCode;
  readonly faultLocation: FaultLocation | undefined;

  constructor(code: ErrorCode, message: string, faultLocation?: FaultLocation) {
    super(message);
    this.code = code;
    this.faultLocation = faultLocation;
  }

  /** The error of one item of a list. @param name of the list; '' if the body is the list */
  forListItem(name: string, index: number): ApiError {
    const item = `${name}[${index}]`;
    const { location = 'body', ...rest } = this.faultLocation ?? {};
    const field = location.slice('body'.length);
    const path = name === '' ? `body[${index}]` : `body.${item}`;
    return new ApiError(this.code, `${item}: ${this.message}`, {
      ...rest,
      location: path + field,
    });
  }
}

/** Shared memory has an unexpected layout or content: the process has to end. */
export class MemoryError extends Error {}

/** A reason not to start, or to end, in one sentence for the operator. */
export class StartError extends Error {
  /** The exit code of the process; without one, the phase of the start decides. */
  readonly exitCode: ExitCode | undefined;

  constructor(message: string, exitCode?: ExitCode) {
    super(message);
    this.exitCode = exitCode;
  }
}
