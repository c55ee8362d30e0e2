/**
 * The errors of the API: the code, HTTP status and remedy of each. The pages under /docs/errors are
 * generated from the same table.
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
    title: 'The request is invalid.',
    remedy:
      'The message names the first invalid field, the value received and the values accepted. In ' +
      'v2 it is "detail", and "errors" has the location and a fix. The body must be JSON in ' +
      'UTF-8. In v2 a missing or malformed header Authorization is a 400 as well. Nothing was ' +
      'counted.',
  },
  UNAUTHORIZED: {
    status: '401 Unauthorized',
    title: 'The request has no valid API key.',
    remedy:
      'Send the header "Authorization: Bearer <key>" with a key that exists, has not expired and ' +
      'is not revoked.',
  },
  FORBIDDEN: {
    status: '403 Forbidden',
    title: 'The API key lacks a permission.',
    remedy:
      'The message names the permissions that allow the request. Use a key that has one of them.',
  },
  NOT_FOUND: {
    status: '404 Not Found',
    title: 'The path or the object does not exist.',
    remedy:
      'The message names the path, override, key, policy or namespace that does not exist. A ' +
      'namespace is created by its first check if the key has the permission to create it.',
  },
  METHOD_NOT_ALLOWED: {
    status: '405 Method Not Allowed',
    title: 'The path does not accept this method.',
    remedy: 'Use the method in the header "Allow".',
  },
  CONFLICT: {
    status: '409 Conflict',
    title: 'The state of the service does not allow this change.',
    remedy: 'The message names the conflict, and what to do first.',
  },
  PAYLOAD_TOO_LARGE: {
    status: '413 Payload Too Large',
    title: 'The body is too large.',
    remedy: 'The message names the maximum. Send a smaller body; often "meta" is the large field.',
  },
  UNSUPPORTED_MEDIA_TYPE: {
    status: '415 Unsupported Media Type',
    title: 'The header Content-Type is not JSON.',
    remedy: 'Send the header "Content-Type: application/json", or no Content-Type.',
  },
  INTERNAL_SERVER_ERROR: {
    status: '500 Internal Server Error',
    title: 'An internal error occurred.',
    remedy: 'You may send the request again. The log of the service has the cause, by requestId.',
  },
  SERVICE_UNAVAILABLE: {
    status: '503 Service Unavailable',
    title: 'The service cannot process the request now.',
    remedy:
      'Send the request again after the seconds in the header "Retry-After". The message names ' +
      'the reason, and says whether a check may have been counted.',
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
