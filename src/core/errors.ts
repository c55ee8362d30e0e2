/**
 * Every error that a client can be answered with: its code, HTTP status and what to do about it.
 * The documentation pages under /docs/errors are made from the same table.
 */

import type { ExitCode } from './exit.ts';

interface ErrorKind {
  status: string;
  title: string;
  remedy: string;
}

export const ERRORS = {
  BAD_REQUEST: {
    status: '400 Bad Request',
    title: 'The request was not understood.',
    remedy:
      'The message (in v2 the detail, and the errors, which have its place) names the first ' +
      'fault: what was wanted, and what came. The body must be JSON in UTF-8. In v2 a missing or ' +
      'malformed header Authorization is such a fault as well. Nothing was counted.',
  },
  UNAUTHORIZED: {
    status: '401 Unauthorized',
    title: 'The request carries no valid API key.',
    remedy:
      'Send the header "Authorization: Bearer <key>" with a key that exists, has not expired and ' +
      'was not revoked.',
  },
  FORBIDDEN: {
    status: '403 Forbidden',
    title: 'The API key lacks a permission.',
    remedy: 'The message names the permissions that would do. Use a key that has one of them.',
  },
  NOT_FOUND: {
    status: '404 Not Found',
    title: 'There is no such thing.',
    remedy:
      'The message names what was looked for: a path, an override, a key, or a namespace, which ' +
      'this key may not create either.',
  },
  METHOD_NOT_ALLOWED: {
    status: '405 Method Not Allowed',
    title: 'The path exists, but not for this method.',
    remedy: 'The message and the header "Allow" name the method to use.',
  },
  CONFLICT: {
    status: '409 Conflict',
    title: 'This would leave the service in a state that it does not allow.',
    remedy: 'The message says what stands against it, and what to do before.',
  },
  PAYLOAD_TOO_LARGE: {
    status: '413 Payload Too Large',
    title: 'The body is larger than the service reads.',
    remedy: 'The message names the limit. Send less; usually "meta" is what is large.',
  },
  UNSUPPORTED_MEDIA_TYPE: {
    status: '415 Unsupported Media Type',
    title: 'The body is announced as something other than JSON.',
    remedy: 'Send the header "Content-Type: application/json", or none.',
  },
  INTERNAL_SERVER_ERROR: {
    status: '500 Internal Server Error',
    title: 'The service failed.',
    remedy: 'The request may be sent again. The log has the cause, under the requestId.',
  },
  SERVICE_UNAVAILABLE: {
    status: '503 Service Unavailable',
    title: 'The service cannot answer this just now.',
    remedy:
      'Send the request again after the seconds in the header "Retry-After". The message says ' +
      'what cannot be done, and whether a check may have been counted.',
  },
} as const satisfies Record<string, ErrorKind>;

export type ErrorCode = keyof typeof ERRORS;

/** The HTTP status of an error, as a number. */
export function statusOf(code: ErrorCode): number {
  return Number.parseInt(ERRORS[code].status, 10);
}

/** The place of a fault in the header that carries the key. */
export const AUTHORIZATION_LOCATION = 'header.authorization';

/** Where in a request a fault is, and what would mend it. */
export interface FaultLocation {
  /** As in `body.limit`, `body[3].limit`, or AUTHORIZATION_PLACE. */
  location: string;
  fix?: string;
}

/** An answer that is an error. Thrown inside a request, answered by the route wrapper. */
export class ApiError extends Error {
  readonly code: ErrorCode;
  readonly faultLocation: FaultLocation | undefined;

  constructor(code: ErrorCode, message: string, faultLocation?: FaultLocation) {
    super(message);
    this.code = code;
    this.faultLocation = faultLocation;
  }

  /** The same of one item of a list. @param name of the list, if it has one */
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

/** Shared memory that is not what it should be: the process has to end. */
export class MemoryError extends Error {}

/** A reason not to start, or not to go on, in one sentence for the operator. */
export class StartError extends Error {
  /** With which code the process ends; without one, what it was doing decides. */
  readonly exitCode: ExitCode | undefined;

  constructor(message: string, exitCode?: ExitCode) {
    super(message);
    this.exitCode = exitCode;
  }
}
