/**
 * Reads the OpenAPI document for the pages that show it. Operations are listed by group, references
 * are resolved, and each example is one request with its response.
 */

import { EXAMPLE_BASE_URL } from '../../../src/api/common/paths.ts';
import { ERRORS, type ErrorCode, statusOf } from '../../../src/core/errors.ts';
import type {
  ExampleObject,
  Header,
  OpenApiDocument,
  Operation,
  Parameter,
  Reference,
  Schema,
} from '../openapi-types.ts';

export interface ReferenceOperation {
  id: string;
  /** For example `v2`; absent outside of the JSON operations. */
  version: string | undefined;
  /** The summary, without the version in it. */
  title: string;
  /** Of a request, or `ANY`. */
  method: 'GET' | 'POST' | 'ANY';
  path: string;
  operation: Operation;
  /** The schema of the body. */
  body: Schema | undefined;
  responses: readonly ReferenceResponse[];
  examples: readonly ReferenceExample[];
}

export interface ReferenceResponse {
  status: number;
  description: string;
  /** The code of an error with this status. */
  code: ErrorCode | undefined;
  headers: readonly (Header & { name: string })[];
  /** Absent for a response without a body. */
  contentType: string | undefined;
  schema: Schema | undefined;
}

export interface ExampleRequest {
  method: string;
  url: string;
  headers: Readonly<Record<string, string>>;
  body?: unknown;
}

/** A response, and the request that it answers if the document has that request. */
export interface ReferenceExample {
  /** In the document, of the request and of the response. */
  name: string;
  summary: string;
  status: number;
  request: ExampleRequest | undefined;
  /** Absent for a response without a body. */
  response: { value: unknown } | undefined;
}

export interface ReferenceGroup {
  name: string;
  description: string;
  operations: readonly ReferenceOperation[];
}

/** A body of an error, in a version of the API. */
interface ErrorExample {
  version: string;
  value: unknown;
}

const ERROR_CODES = Object.keys(ERRORS) as ErrorCode[];

/** The operations of the document, by tag. */
export function readGroups(document: OpenApiDocument): ReferenceGroup[] {
  const operations = Object.entries(document.paths).flatMap(([path, item]) => {
    const methods = Object.entries(item) as ['get' | 'post', Operation][];
    return methods.map(([method, operation]) => readOperation(document, path, method, operation));
  });
  return document.tags.map(({ name, description }) => {
    const members = operations.filter(({ operation }) => operation.tags[0] === name);
    return { name, description, operations: members };
  });
}

/** The first example of an error with this status, for each version. */
export function readErrorExamples(document: OpenApiDocument, status: number): ErrorExample[] {
  const responses = Object.entries(document.paths).flatMap(([path, item]) => {
    const version = path.split('/')[1];
    return Object.values(item).map(({ responses }) => ({ version, response: responses[status] }));
  });
  return ['v1', 'v2'].flatMap((version) => {
    for (const { response, ...of } of responses) {
      if (of.version !== version || response === undefined) continue;
      const [media] = Object.values(resolve(document, response).content ?? {});
      const [example] = Object.values(media?.examples ?? {});
      if (example !== undefined) return [{ version, value: example.value }];
    }
    return [];
  });
}

/** @throws if the document lacks the component */
function resolve<T>(document: OpenApiDocument, value: T | Reference): T {
  if (typeof value !== 'object' || value === null || !('$ref' in value)) return value as T;
  const keys = String(value.$ref).replace('#/', '').split('/');
  const found = keys.reduce<unknown>((at, key) => (at as Record<string, unknown>)?.[key], document);
  if (found === undefined) throw new Error(`the document has no ${value.$ref}`);
  return found as T;
}

function readOperation(
  document: OpenApiDocument,
  path: string,
  method: 'get' | 'post',
  operation: Operation,
): ReferenceOperation {
  const upper = method === 'get' ? 'GET' : 'POST';
  const [media] = Object.values(operation.requestBody?.content ?? {});
  const versioned = /^(.*) \((v\d)\)$/.exec(operation.summary);
  const isJson = operation.security.some((requirement) => 'apiKey' in requirement);
  return {
    id: operation.operationId,
    version: isJson ? path.split('/')[1] : undefined,
    title: versioned?.[1] ?? operation.summary,
    method: operation['x-any-method'] ? 'ANY' : upper,
    path,
    operation,
    body: media && resolve(document, media.schema),
    responses: readResponses(document, operation),
    examples: readExamples(document, path, upper, operation),
  };
}

function readResponses(document: OpenApiDocument, operation: Operation): ReferenceResponse[] {
  return Object.entries(operation.responses).map(([status, response]) => {
    const { description, headers = {}, content = {} } = resolve(document, response);
    const [[contentType, media] = []] = Object.entries(content);
    return {
      status: Number(status),
      description,
      code: errorCodeOf(Number(status)),
      headers: Object.entries(headers).map(([name, header]) => {
        return { name, ...resolve(document, header) };
      }),
      contentType,
      schema: media && resolve(document, media.schema),
    };
  });
}

function errorCodeOf(status: number): ErrorCode | undefined {
  return ERROR_CODES.find((code) => statusOf(code) === status);
}

/** Examples of a request and of responses belong together by their name. */
function readExamples(
  document: OpenApiDocument,
  path: string,
  method: string,
  operation: Operation,
): ReferenceExample[] {
  const [media] = Object.values(operation.requestBody?.content ?? {});
  const parameters = operation.parameters ?? [];
  const requested = new Set([
    ...Object.keys(media?.examples ?? {}),
    ...parameters.flatMap(({ examples = {} }) => Object.keys(examples)),
  ]);
  const responses = Object.entries(operation.responses).map(([status, response]) => {
    return { status: Number(status), isShared: '$ref' in response, ...resolve(document, response) };
  });
  const request = (name: string, own?: OwnRequest) => {
    return exampleRequest(path, method, operation, name, own);
  };
  const examples: ReferenceExample[] = [];
  // The examples of shared responses are shown with the errors.
  for (const { status, content = {} } of responses.filter(({ isShared }) => !isShared)) {
    const [body] = Object.values(content);
    for (const [name, example] of Object.entries(body?.examples ?? {})) {
      const { summary = name, value, 'x-request': own } = example;
      const isSent = requested.has(name) || own !== undefined || status === 200;
      examples.push({
        name,
        summary,
        status,
        request: isSent ? request(name, own) : undefined,
        response: { value },
      });
      requested.delete(name);
    }
  }
  // The responses to the other requests have no body. If a response's description begins with the
  // name of the example, as that of a denial does, it belongs to it. Otherwise the 200 does.
  const bodiless = [...requested].map((name): ReferenceExample => {
    const summary = name[0].toUpperCase() + name.slice(1);
    const found = responses.find(({ description }) => description.startsWith(summary));
    const { status } = found ?? responses[0];
    return { name, summary, status, request: request(name), response: undefined };
  });
  // Errors are last. A denial of a gateway check is none.
  const [errors, results] = [true, false].map((isError) => {
    return examples.filter(({ status }) => isError === (errorCodeOf(status) !== undefined));
  });
  return [...bodiless, ...results, ...errors];
}

type OwnRequest = NonNullable<ExampleObject['x-request']>;

/** @param own parts of a request that is no example of the operation */
function exampleRequest(
  path: string,
  method: string,
  operation: Operation,
  name: string,
  own: OwnRequest | undefined,
): ExampleRequest {
  const [media] = Object.values(operation.requestBody?.content ?? {});
  const values = (place: Parameter['in'], others: unknown = {}) => {
    const shown = (operation.parameters ?? []).flatMap((parameter): [string, unknown][] => {
      const example = parameter.examples?.[name];
      return parameter.in === place && example ? [[parameter.name, example.value]] : [];
    });
    const all = [...shown, ...Object.entries(Object(others))];
    return all.map(([key, value]): [string, string] => [key, String(value)]);
  };
  const target = values('path', own?.path).reduce((text, [key, value]) => {
    return text.replace(`{${key}}`, value);
  }, path);
  const query = new URLSearchParams(values('query', own?.query)).toString();
  const body = own?.body ?? media?.examples?.[name]?.value;
  return {
    method,
    url: EXAMPLE_BASE_URL + target + (query === '' ? '' : `?${query}`),
    headers: {
      ...keyHeader(operation),
      ...(body !== undefined && { 'Content-Type': 'application/json' }),
      ...Object.fromEntries(values('header')),
    },
    ...(body !== undefined && { body }),
  };
}

function keyHeader({ security }: Operation): Record<string, string> {
  const schemes = security.flatMap((requirement) => Object.keys(requirement));
  if (schemes.includes('apiKey')) return { Authorization: 'Bearer $WEIR_KEY' };
  return schemes.includes('gatewayKey') ? { 'X-Weir-Key': '$WEIR_KEY' } : {};
}
