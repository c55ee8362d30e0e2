/** Renders the page about an error, to which the `docs` or `type` of the error refers. */

import { ERRORS, type ErrorCode, type ErrorKind, statusOf } from '../../src/core/errors.ts';
import { html } from './html.ts';
import { openApiDocument } from './openapi.ts';
import type { OpenApiDocument } from './openapi-types.ts';
import { jsonBlock } from './reference-code.ts';
import { navigationGroups, pageHtml } from './reference-layout.ts';
import { readErrorExamples, readGroups } from './reference-model.ts';
import { methodBadge, statusBadge } from './reference-operation.ts';
import { breakableCode, renderInline } from './reference-prose.ts';

/** Addresses from `/docs/errors/<code>`. */
const REFERENCE = '../../docs';

const ERROR_CODES = Object.keys(ERRORS) as ErrorCode[];

/** The texts of all error pages, by their path in the repository. */
export function errorPageFiles(): Record<string, () => string> {
  return Object.fromEntries(
    ERROR_CODES.map((code) => [`docs/reference/errors/${code}.html`, () => errorPage(code)]),
  );
}

export function errorPage(code: ErrorCode, document: OpenApiDocument = openApiDocument()): string {
  const { status, inV2, title, causes, remedy }: ErrorKind = ERRORS[code];
  const operations = readGroups(document)
    .flatMap((group) => group.operations)
    .filter(({ responses }) => responses.some((response) => response.code === code));
  const examples = readErrorExamples(document, statusOf(code));
  const links = ERROR_CODES.map((other) => {
    return { href: other, text: breakableCode(other), isCurrent: other === code };
  });
  return pageHtml({
    title: `${code} - weir`,
    description: title,
    reference: REFERENCE,
    folder: '../',
    openApi: '../../openapi.json',
    navigation: navigationGroups([
      {
        title: 'API reference',
        links: [
          { href: REFERENCE, text: 'Introduction' },
          { href: `${REFERENCE}#operations`, text: 'All operations' },
        ],
      },
      { title: 'Error codes', links },
    ]),
    isNarrow: true,
    main: html`<p class="path"><a href="${REFERENCE}">API reference</a> /
<a href="${REFERENCE}#error-codes">Error codes</a></p>
<h1 class="code">${breakableCode(code)}</h1>
<p class="lead">${statusBadge(statusOf(code))} HTTP ${status}. ${title}</p>
${inV2 && html`<p>In v2 the status is ${renderInline(inV2)}.</p>`}
<h2 id="causes">Causes</h2>
<ul>
${causes.map((cause) => html`<li>${renderInline(cause)}</li>\n`)}</ul>
<h2 id="remedy">Remedy</h2>
<p>${renderInline(remedy)}</p>
${
  examples.length > 0 &&
  html`<h2 id="examples">Examples</h2>
${examples.map(({ version, value }) => html`<p class="label">${version}</p>${jsonBlock(value)}`)}`
}
${
  operations.length > 0 &&
  html`<h2 id="operations">Operations with this error</h2>
<ul class="index">
${operations.map((operation) => {
  return html`<li><a href="${REFERENCE}#${operation.id}">${methodBadge(operation)}
${breakableCode(operation.path)}</a> <span>${operation.title}</span></li>
`;
})}</ul>`
}`,
  });
}
