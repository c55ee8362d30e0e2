/** One operation of the API in Markdown: what it does, its request, its responses and examples. */

import type { ErrorCode } from '../../../src/core/errors.ts';
import { inlineCode, markdownTable, wrapProse } from '../markdown.ts';
import type { Header, Operation, Parameter, Schema } from '../openapi-types.ts';
import { bytesText } from '../quantities.ts';
import { boundsText, fieldsOf, typeText, valuesOf } from '../schema-text.ts';
import { exampleText } from './examples.ts';
import type { ReferenceExample, ReferenceOperation, ReferenceResponse } from './model.ts';

/** What differs between the pages that show an operation. */
export interface Output {
  /** The address of the text about an error. */
  errorLink: (code: ErrorCode) => string;
  /** The examples that are shown. */
  examplesOf: (operation: ReferenceOperation) => readonly ReferenceExample[];
}

/** The order in which the parameters of a request are shown. */
const PLACES: readonly Parameter['in'][] = ['path', 'query', 'header'];

/** The heading is the name, so that the anchor does not change with the description. */
export function operationSection(operation: ReferenceOperation, output: Output): string {
  const { id, operation: of, responses } = operation;
  const parts = [
    `### ${id}`,
    `${inlineCode(requestLine(operation))}: ${of.summary}.`,
    wrapProse(of.description),
    requirements(of),
    requestPart(operation),
    ...resultParts(responses),
    `#### Errors\n\n${wrapProse(errorsText(responses, output))}`,
    ...output.examplesOf(operation).map((example) => exampleText(example, operation)),
  ];
  return parts.filter((part) => part !== undefined).join('\n\n');
}

export function requestLine({ method, path }: ReferenceOperation): string {
  return `${method} ${path}`;
}

/** The key, its permissions, and the largest body. */
function requirements(operation: Operation): string {
  const { security, 'x-permissions': permissions, 'x-also-permissions': also } = operation;
  const maxBytes = operation['x-max-body-bytes'];
  const alternatives = (names: readonly string[]) => names.map(inlineCode).join(' or ');
  const key =
    security.length > 1
      ? '`X-Weir-Key`; not needed on the listener for gateways'
      : '`Authorization: Bearer …`';
  const facts = [
    `Key: ${security.length === 0 ? 'not needed' : key}`,
    permissions && `Permission: ${alternatives(permissions)}`,
    also && `Also required: ${alternatives(also)}`,
    maxBytes && `Body: at most ${bytesText(maxBytes)}`,
  ];
  return facts.flatMap((fact) => (fact ? `- ${fact}` : [])).join('\n');
}

function requestPart({ body, operation }: ReferenceOperation): string | undefined {
  if (body !== undefined) return `#### Request\n\n${bodyText(body, 'request')}`;
  const rows = PLACES.flatMap((place) => {
    const here = (operation.parameters ?? []).filter((parameter) => parameter.in === place);
    return here.map(({ name, schema, description, required, ...of }) => {
      const cells = fieldCells({ ...schema, description }, required, 'request');
      return [inlineCode(name), of.in, ...cells];
    });
  });
  if (rows.length === 0) return undefined;
  return `#### Request\n\n${markdownTable(['parameter', 'in', 'type', 'meaning'], rows)}`;
}

/** A request says which fields it must have, a response which it may lack. */
type Direction = 'request' | 'response';

/** The fields of a body. */
export function bodyText(schema: Schema, direction: Direction): string {
  const fields = fieldsOf(schema);
  const rows = fields === undefined ? [] : fieldRows(fields, '', direction);
  const isEmpty = schema.type === 'object' && rows.length === 0;
  const notes = [
    schema.type === 'array' && `The body is an ${typeText(schema)}${boundsText(schema)}.`,
    isEmpty && 'The body is an empty object.',
    alternativesText(schema),
  ].filter((note) => typeof note === 'string');
  const table = rows.length > 0 && markdownTable(['field', 'type', 'meaning'], rows);
  return [notes.join(' '), table].filter(Boolean).join('\n\n');
}

/** The fields of an object and of the objects in it, as in `limits[].passed`. */
function fieldRows(
  { properties = {}, required = [] }: Schema,
  prefix: string,
  direction: Direction,
): string[][] {
  return Object.entries(properties).flatMap(([name, schema]) => {
    const path = `${prefix}${name}`;
    const inner = fieldsOf(schema);
    const suffix = schema.type === 'array' ? '[].' : '.';
    const nested = inner === undefined ? [] : fieldRows(inner, path + suffix, direction);
    // The envelope of v2 is described by its fields.
    if (inner !== undefined && schema.description === undefined) return nested;
    const cells = fieldCells(schema, required.includes(name), direction);
    return [[inlineCode(path), ...cells], ...nested];
  });
}

/** The type of a field with its bounds, and its meaning. */
function fieldCells(schema: Schema, isRequired: boolean, direction: Direction): [string, string] {
  const { const: constant, default: byDefault, pattern, description = '' } = schema;
  const values = constant === undefined ? valuesOf(schema) : [constant];
  const code = (value: unknown) => inlineCode(String(value));
  const type = values?.map(code).join(', ') ?? `${typeText(schema)}${boundsText(schema)}`;
  const presence =
    direction === 'request' ? isRequired && '; **required**' : !isRequired && '; optional';
  const ending = byDefault === undefined ? presence || '' : `; default ${code(byDefault)}`;
  const inner = fieldsOf(schema);
  const meaning = [
    description,
    pattern === undefined ? '' : patternText(pattern),
    (inner && alternativesText(inner)) ?? '',
  ];
  return [type + ending, meaning.filter((sentence) => sentence !== '').join(' ')];
}

function patternText(pattern: string): string {
  const [, prefix] = /^\^(\w+)$/.exec(pattern) ?? [];
  return prefix === undefined ? `Pattern: ${inlineCode(pattern)}` : `Begins with \`${prefix}\`.`;
}

/** Fields of which one is required. Other alternatives are explained by the descriptions. */
function alternativesText({ allOf = [] }: Schema): string | undefined {
  const anyOf = allOf.flatMap((rule) => rule.anyOf ?? []);
  const isChoice = anyOf.every((alternative) => Object.keys(alternative).join() === 'required');
  if (anyOf.length === 0 || !isChoice) return undefined;
  const names = anyOf.flatMap(({ required = [] }) => required.map(inlineCode));
  return `${names.join(' or ')} is required.`;
}

/** The responses that are no errors of the API: a result, or a denial of a gateway check. */
function resultParts(responses: readonly ReferenceResponse[]): string[] {
  const shown = responses.filter((response) => isResult(response) || hasOwnHeaders(response));
  return shown.map((response, i) => {
    const { status, description, headers, schema } = response;
    const same = shown.slice(0, i).find((earlier) => haveSameHeaders(earlier, response));
    // The fields of errors are shown with the error codes, and a page of HTML has none.
    const hasFields = isResult(response) && schema !== undefined && schema.type !== 'string';
    const parts = [
      `#### Response ${status}`,
      hasFields && headers.length === 0 ? '' : wrapProse(description),
      headers.length === 0 ? '' : headersText(headers, same),
      hasFields ? bodyText(schema, 'response') : '',
    ];
    return parts.filter((part) => part !== '').join('\n\n');
  });
}

function headersText(
  headers: readonly (Header & { name: string })[],
  same: ReferenceResponse | undefined,
): string {
  if (same !== undefined) return `Its headers are those of the response ${same.status}.`;
  // The syntax of a header is that of its example.
  const rows = headers.map(({ name, schema: { pattern, ...schema }, description }) => {
    return [inlineCode(name), ...fieldCells({ ...schema, description }, true, 'response')];
  });
  return markdownTable(['header', 'type', 'meaning'], rows);
}

function haveSameHeaders(a: ReferenceResponse, b: ReferenceResponse): boolean {
  const names = ({ headers }: ReferenceResponse) => headers.map(({ name }) => name).join();
  return names(a) === names(b);
}

function isResult({ code }: ReferenceResponse): boolean {
  return code === undefined;
}

/** Headers beside those of every error of the API. */
function hasOwnHeaders({ headers }: ReferenceResponse): boolean {
  return headers.some(({ name }) => !['X-Request-Id', 'Retry-After'].includes(name));
}

/** All errors with links, and when those occur that depend on the operation. */
function errorsText(responses: readonly ReferenceResponse[], { errorLink }: Output): string {
  const links = responses.flatMap(({ status, code }) => {
    return code === undefined ? [] : `[${status}](${errorLink(code)})`;
  });
  const own = responses.filter((response) => {
    return [404, 409].includes(response.status) && !hasOwnHeaders(response);
  });
  const reasons = own.map(({ status, description }) => `${status}: ${description}`);
  return [`${links.join(', ')}.`, ...reasons].join(' ');
}
