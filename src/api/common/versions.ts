/**
 * The two versions of the API, where all operations of one differ from those of the other: how an
 * error looks, and what an answer is wrapped in. What they do is the same service.
 */

import {
  type ApiError,
  AUTHORIZATION_LOCATION,
  ERRORS,
  type ErrorCode,
  statusOf,
} from '../../core/errors.ts';

export type Version = 'v1' | 'v2';
export type ByVersion<T> = Readonly<Record<Version, T>>;

export interface ResponseFormat {
  /** The code by which an error is answered and counted. */
  errorCode(error: ApiError): ErrorCode;
  /** The body of an error. @param docs a link to the page of its code */
  errorBody(error: ApiError, code: ErrorCode, docs: string, requestId: string): string;
  /** The body of a 200, from the object that an operation answers, as text. */
  successBody(text: string, requestId: string): string;
}

const v1: ResponseFormat = {
  errorCode: ({ code }) => code,
  errorBody: ({ message }, code, docs, requestId) => {
    return JSON.stringify({ error: { code, docs, message, requestId } });
  },
  successBody: (text) => text,
};

const v2: ResponseFormat = {
  // A request whose header holds no key is at fault itself; a key that is none is not.
  errorCode: ({ code, faultLocation }) => {
    return faultLocation?.location === AUTHORIZATION_LOCATION ? 'BAD_REQUEST' : code;
  },
  errorBody: ({ message, faultLocation = { location: 'body' } }, code, docs, requestId) => {
    const status = statusOf(code);
    const title = ERRORS[code].status.slice(`${status} `.length);
    const { location, ...rest } = faultLocation;
    const errors = code === 'BAD_REQUEST' ? { errors: [{ location, message, ...rest }] } : {};
    const error = { title, detail: message, status, type: docs, ...errors };
    return JSON.stringify({ meta: { requestId }, error });
  },
  successBody: (text, requestId) => `{"meta":{"requestId":"${requestId}"},${text.slice(1)}`,
};

export const RESPONSE_FORMATS: ByVersion<ResponseFormat> = { v1, v2 };

/** The version that a path is of, or would be. */
export function versionOf(path: string): Version {
  return path.startsWith('/v2/') ? 'v2' : 'v1';
}
