/** The OpenAPI document of the repository, and the requests and responses of its examples. */

import { readFileSync } from 'node:fs';
import type { AnySchemaObject } from 'ajv';
import { Ajv2020 } from 'ajv/dist/2020.js';
import formats from 'ajv-formats';
import type {
  ExampleObject,
  ExampleRequest,
  Header,
  OpenApiDocument,
  Operation,
  Reference,
  Response,
} from '../../tools/docs/openapi-types.ts';

const TEXT = readFileSync(new URL('../../docs/openapi.json', import.meta.url), 'utf8');
const OPENAPI: OpenApiDocument = JSON.parse(TEXT);

export interface DocumentedOperation extends Operation {
  method: 'GET' | 'POST';
  /** With parameters, as in `/docs/errors/{code}`. */
  path: string;
}

export const DOCUMENTED_OPERATIONS = Object.entries(OPENAPI.paths).flatMap(([path, item]) => {
  return Object.entries(item).map(([method, operation]): DocumentedOperation => {
    return { ...operation, method: method.toUpperCase() as 'GET' | 'POST', path };
  });
});

/** A request of the document, and what it says about the response. */
export interface RequestExample {
  name: string;
  request: RequestParts;
  status: number;
  /** Absent if the example has no body. */
  body?: unknown;
}

export interface RequestParts {
  body?: unknown;
  query: Readonly<Record<string, unknown>>;
  path: Readonly<Record<string, unknown>>;
  headers: Readonly<Record<string, string>>;
}

export function resolved<T extends object>(value: T | Reference): T {
  if (!('$ref' in value)) return value;
  const steps = value.$ref.split('/').slice(1);
  return steps.reduce<unknown>((at, step) => (at as Record<string, unknown>)[step], OPENAPI) as T;
}

export function responseOf({ responses }: Operation, status: number): Response | undefined {
  const response = responses[status];
  return response === undefined ? undefined : resolved(response);
}

/** The only media type of a response. */
export function contentOf(response: Response) {
  const [entry] = Object.entries(response.content ?? {});
  return entry === undefined ? undefined : { type: entry[0], ...entry[1] };
}

export function headersOf({ headers = {} }: Response): [name: string, header: Header][] {
  return Object.entries(headers).map(([name, header]) => [name, resolved(header)]);
}

/** The example responses of an operation, by status and name. */
export function responseExamples(
  operation: Operation,
): { name: string; status: number; example: ExampleObject }[] {
  return Object.keys(operation.responses).flatMap((status) => {
    const response = responseOf(operation, Number(status))!;
    return Object.entries(contentOf(response)?.examples ?? {}).map(([name, example]) => {
      return { name, status: Number(status), example };
    });
  });
}

/** All requests that the document shows for an operation, with their responses. */
export function requestExamples(operation: DocumentedOperation): RequestExample[] {
  const parameters = operation.parameters ?? [];
  const bodies = operation.requestBody?.content['application/json'].examples ?? {};
  const responses = responseExamples(operation);
  const names = new Set([
    ...Object.keys(bodies),
    ...parameters.flatMap(({ examples = {} }) => Object.keys(examples)),
    ...responses.filter(({ example }) => 'x-request' in example).map(({ name }) => name),
    // A request without parameters and body.
    ...responses.filter(({ status }) => status === 200).map(({ name }) => name),
  ]);
  const needsNothing = !parameters.some(({ required }) => required) && !operation.requestBody;
  if (names.size === 0 && needsNothing) names.add('request');
  return [...names].map((name): RequestExample => {
    const response = responses.find((one) => one.name === name);
    const own = response?.example['x-request'];
    const valuesIn = (place: string) => {
      const present = parameters.filter((one) => one.in === place && one.examples?.[name]);
      return Object.fromEntries(present.map((one) => [one.name, one.examples?.[name].value]));
    };
    const request: RequestParts = {
      ...(name in bodies && { body: bodies[name].value }),
      query: valuesIn('query'),
      path: valuesIn('path'),
      headers: valuesIn('header') as Record<string, string>,
      ...(own satisfies ExampleRequest | undefined as Partial<RequestParts>),
    };
    const { status = 200, example } = response ?? {};
    return { name, request, status, ...(example && { body: example.value }) };
  });
}

const ajv = new Ajv2020({ allErrors: true, strict: true, strictTypes: false });
formats.default(ajv);
ajv.addKeyword({ keyword: 'example', schemaType: [] as never[] });
/** Once more, with objects that have no other fields than those that are documented. */
const closed = JSON.parse(TEXT, (_, value) => {
  const { type, properties } = value ?? {};
  const isObject = type === 'object' && Object.keys(properties ?? {}).length > 0;
  return isObject ? { additionalProperties: false, ...value } : value;
});
const schemas = { $id: 'openapi', $defs: closed.components.schemas };
ajv.addSchema(schemas);

/** @returns the faults of a response; an undocumented field is one */
export function faultsIn(schema: AnySchemaObject, value: unknown): string[] {
  const text = JSON.stringify(schema).replaceAll('#/components/schemas/', 'openapi#/$defs/');
  const validate = ajv.compile(JSON.parse(text));
  if (validate(value)) return [];
  return (validate.errors ?? []).map(({ instancePath, message }) => `${instancePath} ${message}`);
}
