/** The parts of an OpenAPI 3.1 document that weir's has. */

/** A JSON Schema. */
export interface Schema {
  $ref?: string;
  type?: string;
  description?: string;
  default?: unknown;
  enum?: readonly unknown[];
  const?: unknown;
  format?: string;
  pattern?: string;
  minimum?: number;
  maximum?: number;
  minLength?: number;
  maxLength?: number;
  minItems?: number;
  maxItems?: number;
  items?: Schema;
  properties?: Readonly<Record<string, Schema>>;
  required?: readonly string[];
  additionalProperties?: boolean;
  anyOf?: readonly Schema[];
  allOf?: readonly Schema[];
}

export interface ExampleObject {
  summary?: string;
  value: unknown;
  /** Of a response: its request, if that is invalid and so no example of the request. */
  'x-request'?: ExampleRequest;
}

/** The parts of a request that are not in the examples of the operation. */
export interface ExampleRequest {
  body?: unknown;
  query?: unknown;
  path?: Readonly<Record<string, string>>;
}
type Examples = Readonly<Record<string, ExampleObject>>;

export interface Reference {
  $ref: string;
}

interface MediaType {
  schema: Schema;
  examples?: Examples;
}
export type Content = Readonly<Record<string, MediaType>>;

export interface Header {
  description: string;
  schema: Schema;
  example?: unknown;
  /** By the name of the response's example. */
  examples?: Examples;
}

export interface Response {
  description: string;
  headers?: Readonly<Record<string, Header | Reference>>;
  content?: Content;
}

export interface Parameter {
  name: string;
  in: 'path' | 'query' | 'header';
  required: boolean;
  description: string;
  schema: Schema;
  examples?: Examples;
}

interface Server {
  url: string;
  description: string;
  variables?: Readonly<Record<string, { default: string; description: string }>>;
}

type SecurityRequirement = Readonly<Record<string, readonly string[]>>;

export interface Operation {
  operationId: string;
  tags: readonly string[];
  summary: string;
  description: string;
  security: readonly SecurityRequirement[];
  servers?: readonly Server[];
  parameters?: readonly Parameter[];
  requestBody?: { required: true; content: Content };
  responses: Readonly<Record<string, Response | Reference>>;
  /** One of these permissions is sufficient. Absent for an operation without a key. */
  'x-permissions'?: readonly string[];
  /** One of these is required too. */
  'x-also-permissions'?: readonly string[];
  /** The largest body that is accepted, in bytes. */
  'x-max-body-bytes'?: number;
  /** The operation accepts every method, and answers all alike. */
  'x-any-method'?: true;
}

export type Method = 'get' | 'post';
export type PathItem = Readonly<Partial<Record<Method, Operation>>>;

export interface OpenApiDocument {
  openapi: '3.1.1';
  info: {
    title: string;
    version: string;
    summary: string;
    description: string;
    license: { name: string; identifier: string };
  };
  servers: readonly Server[];
  tags: readonly { name: string; description: string }[];
  security: readonly SecurityRequirement[];
  paths: Readonly<Record<string, PathItem>>;
  components: {
    securitySchemes: Readonly<Record<string, Readonly<Record<string, string>>>>;
    schemas: Readonly<Record<string, Schema>>;
    headers: Readonly<Record<string, Header>>;
    responses: Readonly<Record<string, Response>>;
  };
}
