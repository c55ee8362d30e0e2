/** The fields of a JSON Schema as a list, with the fields of objects below them. */

import { type Html, html, joinHtml } from './html.ts';
import type { Header, Parameter, Schema } from './openapi-types.ts';
import { renderInline } from './reference-prose.ts';
import { boundsText, fieldsOf, typeText, valuesOf } from './schema-text.ts';

/** A request says which fields it must have, a response which it may lack. */
export type Direction = 'request' | 'response';

/** The fields of an object, or of the objects of an array. */
export function fieldList(schema: Schema, direction: Direction): Html | undefined {
  const { properties = {}, required = [] } = fieldsOf(schema) ?? {};
  const fields = Object.entries(properties).map(([name, field]) => {
    return fieldItem(name, field, required.includes(name), direction);
  });
  return fields.length === 0 ? undefined : html`<ul class="fields">${fields}</ul>`;
}

/** Parameters in one place of a request, as in its query. */
export function parameterList(parameters: readonly Parameter[]): Html {
  const fields = parameters.map(({ name, schema, description, required }) => {
    return fieldItem(name, { ...schema, description }, required, 'request');
  });
  return html`<ul class="fields">${fields}</ul>`;
}

/** Headers of a response. Their syntax is that of their examples. */
export function headerList(headers: readonly (Header & { name: string })[]): Html {
  const fields = headers.map(({ name, schema: { pattern, ...schema }, description }) => {
    return fieldItem(name, { ...schema, description }, true, 'response');
  });
  return html`<ul class="fields">${fields}</ul>`;
}

/** What is said about a schema itself, above its fields. */
export function schemaNote(schema: Schema): Html | undefined {
  const notes = [
    schema.type === 'array' && `The body is an ${typeText(schema)}${boundsText(schema)}.`,
    isEmptyObject(schema) && 'The body is an empty object.',
    alternativesText(schema),
  ].filter((note) => typeof note === 'string');
  return notes.length === 0 ? undefined : html`<p>${renderInline(notes.join(' '))}</p>`;
}

function isEmptyObject({ type, properties = {} }: Schema): boolean {
  return type === 'object' && Object.keys(properties).length === 0;
}

function fieldItem(name: string, schema: Schema, isRequired: boolean, direction: Direction): Html {
  const values = valuesOf(schema);
  const inner = fieldsOf(schema);
  const alternatives = inner && alternativesText(inner);
  return html`<li><p class="field"><code class="name">${name}</code>
<span class="type">${typeText(schema)}${boundsText(schema)}</span>
${presenceMark(isRequired, direction)}</p>
${schema.description && html`<p>${renderInline(schema.description)}</p>`}
${values && html`<p>One of ${joinHtml(values.map(valueCode), ', ')}.</p>`}
${schema.const !== undefined && html`<p>Always ${valueCode(schema.const)}.</p>`}
${schema.pattern !== undefined && patternNote(schema.pattern)}
${schema.default !== undefined && html`<p>Default: ${valueCode(schema.default)}</p>`}
${alternatives && html`<p>${renderInline(alternatives)}</p>`}
${fieldList(schema, direction)}</li>
`;
}

function presenceMark(isRequired: boolean, direction: Direction): Html | undefined {
  if (direction === 'response') {
    return isRequired ? undefined : html`<span class="optional">optional</span>`;
  }
  return isRequired ? html`<strong class="required">required</strong>` : undefined;
}

function valueCode(value: unknown): Html {
  return html`<code>${typeof value === 'string' ? value : JSON.stringify(value)}</code>`;
}

function patternNote(pattern: string): Html {
  const [, prefix] = /^\^(\w+)$/.exec(pattern) ?? [];
  if (prefix !== undefined) return html`<p>Begins with <code>${prefix}</code>.</p>`;
  return html`<p>Pattern: <code>${pattern}</code></p>`;
}

/** Fields of which one is required. Other alternatives are explained by the descriptions. */
function alternativesText({ allOf = [] }: Schema): string | undefined {
  const anyOf = allOf.flatMap((rule) => rule.anyOf ?? []);
  const isChoice = anyOf.every((alternative) => Object.keys(alternative).join() === 'required');
  if (anyOf.length === 0 || !isChoice) return undefined;
  const names = anyOf.flatMap(({ required = [] }) => required.map((name) => `\`${name}\``));
  return `${names.join(' or ')} is required.`;
}
