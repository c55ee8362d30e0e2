/**
 * The requests that are no JSON operations of the API: checks of gateways, whose client is
 * described by headers, and the pages of the documentation.
 */

import { PAGE_HEADERS } from '../../src/api/common/page-headers.ts';
import {
  AUTH_REQUEST_PATH,
  CHECK_PATH,
  ERROR_PAGES_PATH,
  OPENAPI_PATH,
  REFERENCE_PATH,
} from '../../src/api/common/paths.ts';
import { limitV1 } from '../../src/api/operations/v1/limit.ts';
import { errorBodyV1 } from '../../src/api/texts/examples.ts';
import { permissionsOf, type Tag } from '../../src/api/texts/operation-texts.ts';
import { NAMESPACE_MAX_CHARACTERS } from '../../src/core/constants.ts';
import { ERRORS } from '../../src/core/errors.ts';
import { GATEWAYS, type Gateway } from '../../src/policies/gateways.ts';
import { errorResponse, inlineErrorResponse, schemaReference } from './openapi-responses.ts';
import type { Header, Operation, Parameter, PathItem, Response } from './openapi-types.ts';

const HEADER = '#/components/headers/';
const QUOTA_HEADERS = {
  'RateLimit-Policy': { $ref: `${HEADER}RateLimitPolicy` },
  RateLimit: { $ref: `${HEADER}RateLimit` },
  'X-RateLimit-Limit': { $ref: `${HEADER}XRateLimitLimit` },
  'X-RateLimit-Remaining': { $ref: `${HEADER}XRateLimitRemaining` },
  'X-RateLimit-Reset': { $ref: `${HEADER}XRateLimitReset` },
};
const DENIAL_HEADERS = {
  ...QUOTA_HEADERS,
  'Retry-After': { $ref: `${HEADER}RetryAfter` },
  'Cache-Control': { $ref: `${HEADER}CacheControl` },
};

/** The names of the requests, which are those of their responses, and the client of each. */
const CLIENTS = { allowed: '203.0.113.1', denied: '203.0.113.2' };
/** The policy of the examples serves several gateways, so a request has to name one. */
const EXAMPLE_POLICY = {
  namespace: 'login',
  gateways: ['nginx', 'caddy', 'envoy'],
} as const satisfies { namespace: string; gateways: readonly Gateway[] };

const SERVERS = [
  { url: '/', description: 'The port for checks. It requires the header `X-Weir-Key`.' },
  {
    url: 'http://127.0.0.1:{port}',
    description: 'The listener for gateways. It requires no key.',
    variables: { port: { default: '7072', description: 'WEIR_GATEWAY_PORT' } },
  },
];

const NAMESPACE: Parameter = {
  name: 'namespace',
  in: 'path',
  required: true,
  description: 'The namespace of a policy in the configuration file.',
  schema: {
    type: 'string',
    maxLength: NAMESPACE_MAX_CHARACTERS,
    pattern: '^[A-Za-z0-9_~][A-Za-z0-9._~:@-]*$',
  },
  examples: {
    allowed: { value: EXAMPLE_POLICY.namespace },
    denied: { value: EXAMPLE_POLICY.namespace },
    unknown: { value: 'nowhere' },
  },
};

/** @param example the gateway of the allowed and of the denied request */
function gatewayParameter(example: (typeof EXAMPLE_POLICY.gateways)[number]): Parameter {
  return {
    name: 'gateway',
    in: 'query',
    required: false,
    description:
      'The gateway that sends the check: a gateway of the policy. It decides which headers weir ' +
      'trusts, so write it into the configuration of the gateway. If the policy serves several ' +
      'gateways, this parameter is required, and any other query is a 404. If the policy serves ' +
      'one gateway, it may be absent, and other parameters are ignored.',
    schema: { type: 'string', enum: GATEWAYS },
    examples: { allowed: { value: example }, denied: { value: example } },
  };
}

const PATH: Parameter = {
  name: 'path',
  in: 'path',
  required: true,
  description: "The path of the client's request. It may contain `/`.",
  schema: { type: 'string' },
  examples: {
    allowed: { value: 'account' },
    denied: { value: 'account' },
    unknown: { value: 'account' },
  },
};

function optionalHeader(name: string, description: string): Parameter {
  return { name, in: 'header', required: false, description, schema: { type: 'string' } };
}

const CLIENT_HEADERS: readonly Parameter[] = [
  {
    ...optionalHeader(
      'X-Forwarded-For',
      'The chain of addresses that proxies append to. `trustedHops` of the policy says which ' +
        'address is that of the client.',
    ),
    examples: {
      allowed: { value: CLIENTS.allowed },
      denied: { value: CLIENTS.denied },
    },
  },
  optionalHeader('X-Forwarded-Method', "The method of the client's request."),
  optionalHeader('X-Forwarded-Uri', "The path of the client's request."),
];

const ALLOWED: Response = {
  description:
    'The request is allowed. The response has no body. If weir fails and `onError` of the policy ' +
    'is `allow`, the response is a 200 too, without the header `RateLimit`.',
  headers: QUOTA_HEADERS,
};
const DENIED: Response = {
  description:
    'The request is denied. Either a limit of the policy is reached, or a part of the identity ' +
    'is missing and `missing` of the policy is `deny`. If weir fails and `onError` of the policy ' +
    'is `deny`, the response is a 429 too. The response to HEAD has no body.',
  headers: DENIAL_HEADERS,
  content: {
    'application/problem+json': {
      schema: schemaReference('Problem'),
      examples: {
        denied: {
          summary: 'The limit is reached',
          value: {
            type: 'https://iana.org/assignments/http-problem-types#quota-exceeded',
            title: 'Request cannot be satisfied as assigned quota has been exceeded',
            status: 429,
            detail: 'retry after 17 s',
            'violated-policies': ['login'],
          },
        },
      },
    },
  },
};

const LACKS_PERMISSION = inlineErrorResponse('v1', 'FORBIDDEN', {
  missingPermission: {
    summary: 'The key lacks the permission',
    value: errorBodyV1(
      'FORBIDDEN',
      'the API key lacks the permission "ratelimit.*.limit" or "ratelimit.<namespaceId>.limit"',
    ),
  },
});
const UNKNOWN_NAMESPACE = {
  unknown: {
    summary: 'The namespace has no policy',
    value: errorBodyV1('NOT_FOUND', 'there is no policy for the namespace "nowhere"'),
  },
};
const NOT_FOUND = {
  ...inlineErrorResponse('v1', 'NOT_FOUND', {
    ...UNKNOWN_NAMESPACE,
    noGateway: {
      summary: 'The policy serves several gateways, and the query names none',
      value: errorBodyV1(
        'NOT_FOUND',
        `the policy for the namespace "${EXAMPLE_POLICY.namespace}" serves ` +
          `${EXAMPLE_POLICY.gateways.join(', ')}; the query of a check must be gateway=<name> ` +
          'with one of these names; got no query',
      ),
      'x-request': { path: { namespace: EXAMPLE_POLICY.namespace } },
    },
  }),
  description: 'The namespace has no policy, or the query does not name a gateway of the policy.',
};
const PATH_NOT_FOUND = {
  ...inlineErrorResponse('v1', 'NOT_FOUND', UNKNOWN_NAMESPACE),
  description: 'The namespace has no policy, or the policy serves neither Envoy nor Istio.',
};

/** Responses of all gateway checks. */
const ERROR_RESPONSES = {
  400: inlineErrorResponse('v1', 'BAD_REQUEST', {}),
  401: { $ref: '#/components/responses/GatewayUnauthorized' },
  500: errorResponse('v1', 'INTERNAL_SERVER_ERROR'),
  503: errorResponse('v1', 'SERVICE_UNAVAILABLE'),
};

const COMMON_DESCRIPTION =
  'A gateway sends this check for a request of one of its clients. weir decides by the policy of ' +
  'the namespace. Every method is accepted and has the same effect. weir does not read a body: ' +
  'if the check has one, weir closes the connection after the response.\n\n' +
  'weir reads only the headers that identify the client: those that the gateway sets itself, and ' +
  'the headers and cookies that `identify` of the policy names.';

function gatewayCheck(
  operationId: string,
  summary: string,
  description: string,
  address: readonly Parameter[],
  responses: Readonly<Record<string, Response>>,
): PathItem {
  const get: Operation = {
    operationId,
    tags: ['Gateway checks' satisfies Tag],
    summary,
    description: `${COMMON_DESCRIPTION}\n\n${description}`,
    security: [{ gatewayKey: [] }, {}],
    servers: SERVERS,
    parameters: [...address, ...CLIENT_HEADERS],
    responses: { 200: ALLOWED, ...responses, ...ERROR_RESPONSES },
    'x-permissions': permissionsOf(limitV1.requires).permissions,
    'x-any-method': true,
  };
  return { get };
}

/** What each header of a page is for. */
const PAGE_HEADER_DESCRIPTIONS: Readonly<Record<keyof typeof PAGE_HEADERS, string>> = {
  'Cache-Control':
    'A client that has stored the page sends its `ETag` before it uses the page again.',
  'Content-Security-Policy': 'A page runs no script, and loads only its own style and icon.',
  'Cross-Origin-Resource-Policy': 'Pages of other origins cannot load it.',
  'Referrer-Policy': 'Links send no address of a page.',
  Vary: 'Pages show the address by which the client reaches the server.',
  'X-Content-Type-Options': 'Browsers use the header `Content-Type` as it is.',
};

/** The headers of all pages, for the components of the document. */
export const PAGE_HEADER_COMPONENTS: Readonly<Record<string, Header>> = {
  ETag: {
    description:
      'It changes with the page. A request with this value in `If-None-Match` gets a 304.',
    schema: { type: 'string' },
    example: '"Yb8sKQ0vN3m5T1uXcRz7Lw"',
  },
  ...Object.fromEntries(
    pageHeaderNames().map((name): [string, Header] => {
      const value = PAGE_HEADERS[name];
      const description = PAGE_HEADER_DESCRIPTIONS[name];
      return [componentName(name), { description, schema: { type: 'string', const: value } }];
    }),
  ),
};

const HEADERS_OF_PAGE = {
  ETag: { $ref: `${HEADER}ETag` },
  ...Object.fromEntries(
    pageHeaderNames().map((name) => [name, { $ref: HEADER + componentName(name) }]),
  ),
};

function pageHeaderNames(): (keyof typeof PAGE_HEADERS)[] {
  return Object.keys(PAGE_HEADERS) as (keyof typeof PAGE_HEADERS)[];
}

/** The name of a header of pages in the components. */
function componentName(header: string): string {
  return `Page${header.replaceAll('-', '')}`;
}

function page(
  operationId: string,
  summary: string,
  description: string,
  ok: Response,
  more: Pick<Operation, 'parameters'> & { notFound?: Response } = {},
): PathItem {
  const { notFound, ...rest } = more;
  const get: Operation = {
    operationId,
    tags: ['Documentation' satisfies Tag],
    summary,
    description,
    security: [],
    ...rest,
    responses: {
      200: { ...ok, headers: HEADERS_OF_PAGE },
      304: {
        description: 'The header `If-None-Match` has the current `ETag`. The response has no body.',
        headers: HEADERS_OF_PAGE,
      },
      400: inlineErrorResponse('v1', 'BAD_REQUEST', {}),
      ...(notFound && { 404: notFound }),
      500: errorResponse('v1', 'INTERNAL_SERVER_ERROR'),
      503: errorResponse('v1', 'SERVICE_UNAVAILABLE'),
    },
  };
  return { get };
}

const HTML_TYPE = 'text/html; charset=utf-8';
const HTML = { [HTML_TYPE]: { schema: { type: 'string' } } };

export const GATEWAY_PATHS: Readonly<Record<string, PathItem>> = {
  [`${CHECK_PATH}{namespace}`]: gatewayCheck(
    'gateway.check',
    'Check a request of a gateway',
    'Caddy, HAProxy, Traefik, APISIX and applications use this path.',
    [NAMESPACE, gatewayParameter('caddy')],
    { 403: LACKS_PERMISSION, 404: NOT_FOUND, 429: DENIED },
  ),
  [`${CHECK_PATH}{namespace}/{path}`]: gatewayCheck(
    'gateway.checkPath',
    'Check a request of a gateway that appends the path',
    'Envoy and Istio use this path, because they append the path of the request. The query is ' +
      'that of the client, so it cannot name the gateway. Therefore the policy must serve Envoy ' +
      'or Istio, and can serve only one of the two.',
    [NAMESPACE, PATH],
    { 403: LACKS_PERMISSION, 404: PATH_NOT_FOUND, 429: DENIED },
  ),
  [`${AUTH_REQUEST_PATH}{namespace}`]: gatewayCheck(
    'gateway.authRequest',
    'Check a request of nginx',
    'nginx uses this path in `auth_request`, which accepts no 429. So a denial is a 403 without ' +
      'a body, and the printed configuration turns it into a 429.',
    [NAMESPACE, gatewayParameter('nginx')],
    {
      404: NOT_FOUND,
      403: {
        ...LACKS_PERMISSION,
        description:
          'Without a body: the request is denied, for the reasons of a 429 on the other paths. ' +
          'With a body: the key lacks the permission `limit` in the namespace. This error has ' +
          'the header `X-Request-Id`, and none of the headers of a denial.',
        headers: { ...DENIAL_HEADERS, ...LACKS_PERMISSION.headers },
      },
    },
  ),
};

export const DOCUMENTATION_PATHS: Readonly<Record<string, PathItem>> = {
  [REFERENCE_PATH]: page(
    'docs.reference',
    'Get the API reference',
    'Returns the API reference as an HTML page. Its style sheet is `/docs/style.css`.',
    {
      description: 'The page.',
      content: {
        [HTML_TYPE]: {
          ...HTML[HTML_TYPE],
          examples: { page: { summary: 'Its beginning', value: '<!doctype html>' } },
        },
      },
    },
  ),
  [OPENAPI_PATH]: page(
    'docs.openapi',
    'Get this document',
    'Returns the OpenAPI document of the API.',
    {
      description: 'The document.',
      content: {
        'application/json': {
          schema: {
            type: 'object',
            required: ['openapi'],
            properties: { openapi: { type: 'string', description: 'Version of OpenAPI.' } },
          },
          examples: { document: { summary: 'Its beginning', value: { openapi: '3.1.1' } } },
        },
      },
    },
  ),
  [`${ERROR_PAGES_PATH}{code}`]: page(
    'docs.error',
    'Get the page about an error',
    'Returns the page to which `docs` (v1) or `type` (v2) of an error links.',
    { description: 'The page.', content: HTML },
    {
      parameters: [
        {
          name: 'code',
          in: 'path',
          required: true,
          description: 'Code of the error.',
          schema: { type: 'string', enum: Object.keys(ERRORS) },
          examples: { page: { value: 'NOT_FOUND' } },
        },
      ],
      notFound: {
        ...inlineErrorResponse('v1', 'NOT_FOUND', {
          unknown: {
            summary: 'There is no such code',
            value: errorBodyV1('NOT_FOUND', 'there is no GET /docs/errors/NOTHING'),
            'x-request': { path: { code: 'NOTHING' } },
          },
        }),
        description: 'No error has this code.',
      },
    },
  ),
};
