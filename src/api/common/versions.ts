/**
 * The two versions of the API, in what all their operations differ: the format of errors, and the
 * envelope of responses.
 */

import {
  type ApiError,
  AUTHORIZATION_LOCATION,
  ERRORS,
  type ErrorCode,
  statusOf,
} from '../../core/errors.ts';
import type { ErrorV1, ErrorV2 } from './responses.ts';

export type Version = 'v1' | 'v2';
export type ByVersion<T> = Readonly<Record<Version, T>>;

export interface ResponseFormat {
  /** The code of an error in the response and in the metrics. */
  errorCode(error: ApiError): ErrorCode;
  /** The body of an error response. @param docs URL of the page about its code */
  errorBody(error: ApiError, code: ErrorCode, docs: string, requestId: string): string;
  /** The body of a 200 response. @param json the object that an operation returned */
  successBody(json: string, requestId: string): string;
}

const v1: ResponseFormat = {
  errorCode: ({ code }) => code,
  errorBody: ({ message }, code, docs, requestId) => {
    const body: ErrorV1 = { error: { code, docs, message, requestId } };
    return JSON.stringify(body);
  },
  successBody: (json) => json,
};

const v2: ResponseFormat = {
  // v2 answers 400 for a malformed header Authorization, and 401 only for an invalid key.
  errorCode: ({ code, faultLocation }) => {
    return faultLocation?.location === AUTHORIZATION_LOCATION ? 'BAD_REQUEST' : code;
  },
  errorBody: ({ message, faultLocation = { location: 'body' } }, code, docs, requestId) => {
    const status = statusOf(code);
    const title = ERRORS[code].status.slice(`${status} `.length);
    const { location, ...rest } = faultLocation;
    const errors = code === 'BAD_REQUEST' ? { errors: [{ location, message, ...rest }] } : {};
    const error = { title, detail: message, status, type: docs, ...errors };
    const body: ErrorV2 = { meta: { requestId }, error };
    return JSON.stringify(body);
  },
  successBody: (json, requestId) => `{"meta":{"requestId":"${requestId}"},${json.slice(1)}`,
};

export const RESPONSE_FORMATS: ByVersion<ResponseFormat> = { v1, v2 };

/** The version of a path, whether or not the path exists. */
export function versionOf(path: string): Version {
  return path.startsWith('/v2/') ? 'v2' : 'v1';
}
