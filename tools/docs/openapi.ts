/**
 * Renders `docs/openapi.json`, the OpenAPI 3.1 document of the port for checks. Request schemas are
 * those that validate requests; paths, methods and body limits are those of the routes. The server
 * sends the kept file at `GET /openapi.json`.
 */

import type { TSchema } from 'typebox';
import { pathOf } from '../../src/api/common/operation.ts';
import { EXAMPLE_BASE_URL } from '../../src/api/common/paths.ts';
import { errorV1, errorV2 } from '../../src/api/common/responses.ts';
import { DOCUMENTED } from '../../src/api/operations/documentation.ts';
import { errorBody } from '../../src/api/texts/examples.ts';
import {
  type DocumentedOperation,
  permissionsOf,
  TAGS,
} from '../../src/api/texts/operation-texts.ts';
import { type ErrorCode, statusOf } from '../../src/core/errors.ts';
import { VERSION } from '../../src/core/version.ts';
import { PROBLEM } from '../../src/policies/problem.ts';
import { API_DESCRIPTION, API_SUMMARY } from './api-description.ts';
import {
  DOCUMENTATION_PATHS,
  GATEWAY_PATHS,
  PAGE_HEADER_COMPONENTS,
} from './gateway-operations.ts';
import {
  errorResponse,
  inlineErrorResponse,
  missingKeyV2,
  schemaReference,
  sharedResponses,
} from './openapi-responses.ts';
import type {
  ExampleObject,
  Header,
  OpenApiDocument,
  Operation,
  Parameter,
  PathItem,
  Reference,
  Response,
  Schema,
} from './openapi-types.ts';

const HEADERS: Readonly<Record<string, Header>> = {
  XRequestId: {
    description: 'Id of the request.',
    schema: { type: 'string', pattern: '^req_' },
    example: 'req_732be5619067ac98cad7fd0a_0',
  },
  RetryAfter: {
    description:
      'Seconds until the request would pass, or after which to send it again. Absent from the ' +
      'denial of a request that can never pass.',
    schema: { type: 'integer', minimum: 1 },
    examples: { overload: { value: 1 }, denied: { value: 17 } },
  },
  RateLimitPolicy: {
    description:
      'The windows of the policy, or the override that applies: name, `q` (limit) and `w` ' +
      '(duration in seconds). With `gcra` both are the rate in the long run, without the burst.',
    schema: { type: 'string', pattern: headerList('q=\\d+;w=\\d+') },
    example: '"login";q=100;w=60',
  },
  RateLimit: {
    description:
      'The state by window: name, `r` (tokens left) and `t` (seconds until the reset, or until a ' +
      'denied request would pass; absent if it never will).',
    schema: { type: 'string', pattern: headerList('r=\\d+(?:;t=\\d+)?') },
    examples: {
      allowed: { value: '"login";r=99;t=17' },
      denied: { value: '"login";r=0;t=17' },
    },
  },
  XRateLimitLimit: legacyHeader('Limit of the tightest window.', 100),
  XRateLimitRemaining: legacyHeader('Tokens left in the tightest window.', 99),
  XRateLimitReset: legacyHeader('Reset of the tightest window, in Unix seconds.', 1_795_179_600),
  CacheControl: {
    description: 'A denial must not be cached.',
    schema: { type: 'string', const: 'no-store' },
    example: 'no-store',
  },
  ...PAGE_HEADER_COMPONENTS,
};

/** A list of structured fields (RFC 9651). @param parameters of each item, as a pattern */
function headerList(parameters: string): string {
  const item = `"[^"\\\\]+";${parameters}`;
  return `^${item}(, ${item})*$`;
}

function legacyHeader(description: string, example: number): Header {
  const note = 'Only if the policy has `legacyHeaders`.';
  return { description: `${description} ${note}`, schema: { type: 'integer' }, example };
}

export function openApiDocument(): OpenApiDocument {
  const schemas: Record<string, Schema> = {
    V1Error: documentedSchema(errorV1()),
    V2Error: documentedSchema(errorV2()),
    Problem: documentedSchema(PROBLEM),
  };
  const paths: Record<string, PathItem> = {};
  for (const operation of DOCUMENTED) {
    const { method, request, response } = operation;
    const name = schemaName(operation);
    if (method === 'POST') schemas[`${name}Request`] = documentedSchema(request);
    schemas[`${name}Response`] = documentedSchema(response);
    paths[pathOf(operation)] =
      method === 'POST' ? { post: post(operation) } : { get: get(operation) };
  }
  return {
    openapi: '3.1.1',
    info: {
      title: 'weir',
      version: VERSION,
      summary: API_SUMMARY,
      description: API_DESCRIPTION,
      license: { name: 'Apache License 2.0', identifier: 'Apache-2.0' },
    },
    servers: [
      { url: '/', description: 'The server that serves this document.' },
      { url: EXAMPLE_BASE_URL, description: 'The address of the port for checks.' },
    ],
    tags: Object.entries(TAGS).map(([name, description]) => ({ name, description })),
    security: [{ apiKey: [] }],
    paths: { ...paths, ...GATEWAY_PATHS, ...DOCUMENTATION_PATHS },
    components: {
      securitySchemes: {
        apiKey: {
          type: 'http',
          scheme: 'bearer',
          description: 'An API key, as in `Authorization: Bearer weir_…`.',
        },
        gatewayKey: {
          type: 'apiKey',
          in: 'header',
          name: 'X-Weir-Key',
          description: 'An API key, of a gateway. `Authorization` belongs to its client.',
        },
      },
      schemas,
      headers: HEADERS,
      responses: sharedResponses(),
    },
  };
}

/** The text of `docs/openapi.json`. */
export function openApiJson(): string {
  return `${JSON.stringify(openApiDocument(), undefined, 2)}\n`;
}

/** The name of an operation in the names of its schemas, as in `V1SetOverride`. */
function schemaName({ name, version }: DocumentedOperation): string {
  const [subject, action] = name.split('.');
  const words = subject.startsWith('ratelimit') ? [action] : [subject, action];
  const pascal = words.map((word) => word[0].toUpperCase() + word.slice(1)).join('');
  return version.toUpperCase() + pascal;
}

function post(documented: DocumentedOperation): Operation {
  const schema = schemaReference(`${schemaName(documented)}Request`);
  const examples = requestExamples(documented, (request) => request);
  return {
    ...operation(documented),
    requestBody: { required: true, content: { 'application/json': { schema, examples } } },
    responses: responses(documented),
    ...permissionFields(documented),
    'x-max-body-bytes': documented.maxBytes,
  };
}

function get(documented: DocumentedOperation): Operation {
  const { properties = {}, required = [] } = documentedSchema(documented.request);
  const parameters = Object.entries(properties).map(([field, schema]): Parameter => {
    const { description = '', ...rest } = schema;
    const examples = requestExamples(documented, (request) => fieldOf(request, field));
    const parameter: Parameter = {
      name: field,
      in: 'query',
      required: required.includes(field),
      description,
      schema: rest,
    };
    return Object.keys(examples).length === 0 ? parameter : { ...parameter, examples };
  });
  return {
    ...operation(documented),
    parameters,
    responses: responses(documented),
    ...permissionFields(documented),
  };
}

function permissionFields({ requires }: DocumentedOperation) {
  const { permissions, also } = permissionsOf(requires);
  return { 'x-permissions': permissions, ...(also && { 'x-also-permissions': also }) };
}

function operation({ name, tag, summary, description }: DocumentedOperation) {
  return {
    operationId: name,
    tags: [tag],
    summary,
    description: description.join('\n\n'),
    security: [{ apiKey: [] }],
  };
}

/**
 * An invalid request is no example of the request: it is shown with its response.
 * @param part of a request; a request without it has no example
 */
function requestExamples(
  { examples }: DocumentedOperation,
  part: (request: unknown) => unknown,
): Record<string, ExampleObject> {
  return Object.fromEntries(
    Object.entries(examples).flatMap(([example, { summary, request, status }]) => {
      const value = status === 400 ? undefined : part(request);
      return value === undefined ? [] : [[example, { summary, value }]];
    }),
  );
}

function responses(documented: DocumentedOperation): Record<string, Response | Reference> {
  const { version, method, maxBytes, requires, notFound, conflict, forbidden } = documented;
  const own = (code: ErrorCode, description?: string) => {
    const isV2BadRequest = version === 'v2' && code === 'BAD_REQUEST';
    const response = inlineErrorResponse(version, code, {
      ...responseExamples(documented, statusOf(code)),
      ...(isV2BadRequest && { missingKey: missingKeyV2() }),
    });
    return description === undefined ? response : { ...response, description };
  };
  const withExample = (code: ErrorCode, example: string, summary: string, message: string) => {
    const value = errorBody(version, code, message);
    return inlineErrorResponse(version, code, { [example]: { summary, value } });
  };
  const { permissions } = permissionsOf(requires);
  const hasForbidden = !('in' in requires && requires.in === 'the namespace of the hold');
  const listed = permissions.map((permission) => `"${permission}"`).join(' or ');
  return {
    200: {
      description: 'Success.',
      content: {
        'application/json': {
          schema: schemaReference(`${schemaName(documented)}Response`),
          examples: responseExamples(documented, 200),
        },
      },
    },
    400: own('BAD_REQUEST'),
    401: errorResponse(version, 'UNAUTHORIZED'),
    ...(hasForbidden && {
      403: withExample(
        'FORBIDDEN',
        'missingPermission',
        'The key lacks the permission',
        forbidden ?? `the API key lacks the permission ${listed}`,
      ),
    }),
    ...(notFound !== undefined && { 404: own('NOT_FOUND', notFound) }),
    ...(conflict !== undefined && { 409: own('CONFLICT', conflict) }),
    ...(method === 'POST' && {
      413: withExample(
        'PAYLOAD_TOO_LARGE',
        'tooLarge',
        'The body is too large',
        `the body must be at most ${maxBytes} bytes`,
      ),
      415: errorResponse(version, 'UNSUPPORTED_MEDIA_TYPE'),
    }),
    500: errorResponse(version, 'INTERNAL_SERVER_ERROR'),
    503: errorResponse(version, 'SERVICE_UNAVAILABLE'),
  };
}

function responseExamples(
  { method, examples }: DocumentedOperation,
  status: number,
): Record<string, ExampleObject> {
  const part = method === 'POST' ? 'body' : 'query';
  const shown = Object.entries(examples).filter(([, example]) => example.status === status);
  return Object.fromEntries(
    shown.map(([example, { summary, request, response }]): [string, ExampleObject] => {
      const invalidRequest = status === 400 ? { 'x-request': { [part]: request } } : {};
      return [example, { summary, value: response, ...invalidRequest }];
    }),
  );
}

function fieldOf(request: unknown, field: string): unknown {
  return (request as Record<string, unknown>)[field];
}

/** A schema without weir's own annotation `accepts`, with the type of each enumeration. */
export function documentedSchema(schema: TSchema): Schema {
  return JSON.parse(JSON.stringify(schema), (key, value) => {
    if (key === 'accepts') return undefined;
    if (!Array.isArray(value?.enum)) return value;
    return { type: 'string', ...value };
  });
}
