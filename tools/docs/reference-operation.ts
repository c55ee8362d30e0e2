/** One operation of the reference: what it does, its request, its responses and examples. */

import { STATUS_CODES } from 'node:http';
import { ERRORS, type ErrorCode } from '../../src/core/errors.ts';
import { type Html, html, joinHtml } from './html.ts';
import type { Parameter } from './openapi-types.ts';
import { bytesText } from './quantities.ts';
import { curlBlock, responseBlock } from './reference-code.ts';
import { fieldList, headerList, parameterList, schemaNote } from './reference-fields.ts';
import type { ReferenceExample, ReferenceOperation, ReferenceResponse } from './reference-model.ts';
import { breakableCode, renderInline, renderProse } from './reference-prose.ts';

const PLACES: readonly [place: Parameter['in'], title: string][] = [
  ['path', 'Path parameters'],
  ['query', 'Query parameters'],
  ['header', 'Request headers'],
];

/** @param errorPages the address of the error pages, from this page */
export function operationSection(operation: ReferenceOperation, errorPages: string): Html {
  const { id, title, version, path } = operation;
  return html`<article class="operation" aria-labelledby="${id}">
<h3 id="${id}">${title}${versionChip(version)}<a class="anchor" href="#${id}"
 aria-label="Link to ${title} ${version}">#</a></h3>
<p class="endpoint">${methodBadge(operation)} ${breakableCode(path)}</p>
<div class="columns">
<div class="text">
${renderProse(operation.operation.description)}
${facts(operation)}
${requestPart(operation)}
${successPart(operation)}
${errorTable(operation.responses, errorPages)}
</div>
<div class="examples">
<h4>Examples</h4>
${operation.examples.map((example, i) => exampleBlock(example, i, operation))}
</div>
</div>
</article>
`;
}

export function methodBadge({ method }: ReferenceOperation): Html {
  return html`<span class="method ${method.toLowerCase()}">${method}</span>`;
}

export function versionChip(version: string | undefined): Html | undefined {
  return version === undefined ? undefined : html` <span class="version">${version}</span>`;
}

export function statusBadge(status: number): Html {
  return html`<span class="status s${Math.floor(status / 100)}">${status}</span>`;
}

/** Permissions, and the largest body. */
function facts({ operation }: ReferenceOperation): Html {
  const permissions = operation['x-permissions'];
  const also = operation['x-also-permissions'];
  const maxBytes = operation['x-max-body-bytes'];
  const hasOptionalKey = operation.security.length > 1;
  return html`<dl class="facts">
<dt>Key</dt><dd>${keyText(operation.security.length === 0, hasOptionalKey)}</dd>
${permissions && html`<dt>Permission</dt><dd>${alternatives(permissions)}</dd>`}
${also && html`<dt>Also required</dt><dd>${alternatives(also)}</dd>`}
${maxBytes && html`<dt>Body</dt><dd>at most ${bytesText(maxBytes)}</dd>`}
</dl>`;
}

function alternatives(permissions: readonly string[]): Html {
  const codes = permissions.map((permission) => breakableCode(permission));
  return html`${joinHtml(codes, ' or ')}`;
}

function keyText(isPublic: boolean, isOptional: boolean): Html {
  if (isPublic) return html`not needed`;
  if (!isOptional) return html`<code>Authorization: Bearer …</code>`;
  return html`<code>X-Weir-Key</code>; not needed on the listener for gateways`;
}

function requestPart({ body, operation }: ReferenceOperation): Html {
  const parameters = PLACES.map(([place, title]) => {
    const here = (operation.parameters ?? []).filter((parameter) => parameter.in === place);
    return here.length > 0 && html`<h4>${title}</h4>${parameterList(here)}`;
  });
  const fields =
    body && html`<h4>Request body</h4>${schemaNote(body)}${fieldList(body, 'request')}`;
  return html`${parameters}${fields}`;
}

/** The responses that are no errors of the API: a result, or a denial of a gateway check. */
function successPart({ responses }: ReferenceOperation): Html {
  const shown = responses.filter((response) => isResult(response) || hasOwnHeaders(response));
  const parts = shown.map((response, i) => {
    const { status, description, headers, schema } = response;
    const same = shown.slice(0, i).find((earlier) => haveSameHeaders(earlier, response));
    const list = same
      ? html`<p>Headers: those of the response ${same.status}.</p>`
      : html`<p>Headers:</p>${headerList(headers)}`;
    // The fields of errors are shown with the error codes, and a page of HTML has none.
    const hasFields = isResult(response) && schema?.type !== 'string';
    const body = hasFields && schema && [schemaNote(schema), fieldList(schema, 'response')];
    return html`<h4>Response ${statusBadge(status)}</h4>
${renderProse(description)}
${headers.length > 0 && list}
${body && headers.length > 0 && html`<p>Body:</p>`}
${body}`;
  });
  return html`${parts}`;
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

function errorTable(responses: readonly ReferenceResponse[], errorPages: string): Html {
  const rows = responses.flatMap(({ status, code, description }) => {
    if (code === undefined) return [];
    return html`<tr><th scope="row">${statusBadge(status)} <a href="${errorPages}${code}"
>${breakableCode(code)}</a></th><td>${renderInline(errorText(code, description))}</td></tr>
`;
  });
  return html`<h4>Errors</h4>
<table class="errors"><thead><tr><th scope="col">Status</th><th scope="col">Reason</th></tr></thead>
<tbody>${rows}</tbody></table>`;
}

/** The page about the error has its remedy. */
function errorText(code: ErrorCode, description: string): string {
  const { title } = ERRORS[code];
  return description.startsWith(title) ? title : description;
}

function exampleBlock(
  example: ReferenceExample,
  index: number,
  { responses }: ReferenceOperation,
): Html {
  const { summary, status, request, response } = example;
  const head = headLines(example, responses);
  return html`<details class="example"${index === 0 && html` open`}>
<summary>${summary} ${statusBadge(status)}</summary>
${request && html`<p class="label">Request</p>${curlBlock(request, head.length > 0 ? '-i' : '')}`}
<p class="label">Response</p>
${responseBlock(head, response)}
</details>
`;
}

/** The status line and the headers, where they say more than the body. */
function headLines(
  { name, status, response }: ReferenceExample,
  responses: readonly ReferenceResponse[],
): string[] {
  const { headers = [], code } = responses.find((one) => one.status === status) ?? {};
  const isError = response !== undefined && code !== undefined;
  if (isError || headers.length === 0) return [];
  const shown = headers.flatMap(({ name: header, schema, example, examples }) => {
    const value = examples?.[name]?.value ?? example ?? schema.const;
    const isOptional = header.startsWith('X-RateLimit-');
    return isOptional ? [] : [`${header}: ${value}`];
  });
  return [`HTTP/1.1 ${status} ${STATUS_CODES[status]}`, ...shown];
}
