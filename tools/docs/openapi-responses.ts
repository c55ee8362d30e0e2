/** The error responses of the OpenAPI document, generated from the table of errors. */

import type { Version } from '../../src/api/common/versions.ts';
import { badRequestBodyV2, errorBody, errorBodyV1 } from '../../src/api/texts/examples.ts';
import { AUTHORIZATION_LOCATION, ERRORS, type ErrorCode } from '../../src/core/errors.ts';
import type { ExampleObject, Reference, Response, Schema } from './openapi-types.ts';

export function schemaReference(name: string): Schema {
  return { $ref: `#/components/schemas/${name}` };
}

/** A reference to a response that all operations of a version share. */
export function errorResponse(version: Version, code: SharedErrorCode): Reference {
  return { $ref: `#/components/responses/${sharedName(version, code)}` };
}

/** The response of one operation. */
export function inlineErrorResponse(
  version: Version,
  code: ErrorCode,
  examples: Readonly<Record<string, ExampleObject>>,
): Response {
  const { title, remedy } = ERRORS[code];
  const schema = schemaReference(version === 'v1' ? 'V1Error' : 'V2Error');
  const json = Object.keys(examples).length === 0 ? { schema } : { schema, examples };
  const isRetried = code === 'SERVICE_UNAVAILABLE';
  return {
    description: `${title} ${remedy}`,
    headers: {
      'X-Request-Id': { $ref: '#/components/headers/XRequestId' },
      ...(isRetried && { 'Retry-After': { $ref: '#/components/headers/RetryAfter' } }),
    },
    content: { 'application/json': json },
  };
}

const NO_KEY = 'No key';
const MISSING_KEY = 'the header "Authorization: Bearer <key>" is missing';
const MISSING_KEY_V1: ExampleObject = {
  summary: NO_KEY,
  value: errorBodyV1('UNAUTHORIZED', MISSING_KEY),
};

/** In v2 a request without a key is malformed. */
export function missingKeyV2(): ExampleObject {
  const fix = 'send the header "Authorization: Bearer <key>"';
  return { summary: NO_KEY, value: badRequestBodyV2(AUTHORIZATION_LOCATION, MISSING_KEY, fix) };
}

/** The messages of errors that all operations have in common, by the name of the example. */
const SHARED_MESSAGES = {
  UNAUTHORIZED: {
    unknownKey: ['The key is unknown or revoked', 'the API key is not known here, or was revoked'],
  },
  UNSUPPORTED_MEDIA_TYPE: {
    text: [
      'The body has another type',
      'the header Content-Type must be application/json or absent; got "text/plain"',
    ],
  },
  INTERNAL_SERVER_ERROR: {
    internal: [
      'An internal error',
      'internal error; see the log of the service for this requestId',
    ],
  },
  SERVICE_UNAVAILABLE: {
    overload: ['Too many operations', 'too many operations are queued; nothing was changed'],
  },
} as const satisfies Partial<Record<ErrorCode, Record<string, readonly [string, string]>>>;
export type SharedErrorCode = keyof typeof SHARED_MESSAGES;

function sharedName(version: Version, code: SharedErrorCode): string {
  const words = code.toLowerCase().split('_');
  return (
    version.toUpperCase() + words.map((word) => word[0].toUpperCase() + word.slice(1)).join('')
  );
}

function sharedExamples(version: Version, code: SharedErrorCode): Record<string, ExampleObject> {
  const messages: Record<string, readonly [string, string]> = SHARED_MESSAGES[code];
  const examples = Object.entries(messages).map(([name, [summary, message]]) => {
    return [name, { summary, value: errorBody(version, code, message) }];
  });
  const isMissingKeyHere = version === 'v1' && code === 'UNAUTHORIZED';
  return {
    ...Object.fromEntries(examples),
    ...(isMissingKeyHere && { missingKey: MISSING_KEY_V1 }),
  };
}

export function sharedResponses(): Record<string, Response> {
  const codes = Object.keys(SHARED_MESSAGES) as SharedErrorCode[];
  const responses = (['v1', 'v2'] as const).flatMap((version) =>
    codes.map((code): [string, Response] => [
      sharedName(version, code),
      inlineErrorResponse(version, code, sharedExamples(version, code)),
    ]),
  );
  const missingKey = {
    summary: NO_KEY,
    value: errorBodyV1('UNAUTHORIZED', 'the header "X-Weir-Key: <key>" is missing'),
  };
  return {
    ...Object.fromEntries(responses),
    GatewayUnauthorized: {
      ...inlineErrorResponse('v1', 'UNAUTHORIZED', { missingKey }),
      description:
        'The request has no valid API key in the header `X-Weir-Key`. The listener for gateways ' +
        'requires none.',
    },
  };
}
