/**
 * Renders the reference of the API, the page at `/docs`: introduction, index of the operations, the
 * operations by group, health and metrics, and the index of the error pages.
 */

import { annotations } from '../../src/config/schema.ts';
import { ERRORS, type ErrorCode } from '../../src/core/errors.ts';
import { type Html, html } from './html.ts';
import { openApiDocument } from './openapi.ts';
import type { OpenApiDocument } from './openapi-types.ts';
import { codeBlock, curlBlock, jsonBlock } from './reference-code.ts';
import { fieldList } from './reference-fields.ts';
import { navigationGroups, pageHtml } from './reference-layout.ts';
import { type ReferenceGroup, type ReferenceOperation, readGroups } from './reference-model.ts';
import { methodBadge, operationSection, statusBadge, versionChip } from './reference-operation.ts';
import { breakableCode, readSections, renderInline } from './reference-prose.ts';

/** Addresses from `/docs`. */
const FOLDER = 'docs/';
const ERROR_PAGES = 'docs/errors/';

const ERROR_CODES = Object.keys(ERRORS) as ErrorCode[];

/** The text of `docs/reference/index.html`. */
export function referencePage(document: OpenApiDocument = openApiDocument()): string {
  const groups = readGroups(document);
  const sections = readSections(document.info.description);
  const { title, version, summary } = document.info;
  return pageHtml({
    title: `${title} API reference`,
    description: summary,
    reference: 'docs',
    folder: FOLDER,
    openApi: 'openapi.json',
    navigation: navigation(sections, groups),
    main: html`<section class="introduction" aria-labelledby="introduction">
<h1 id="introduction">${title} API reference</h1>
<p class="lead">${summary} Version ${version}. The same description for programs is
<a href="openapi.json">openapi.json</a>, in OpenAPI ${document.openapi}.</p>
<div class="columns">
<div class="examples">
${firstRequest(groups)}
</div>
<div class="text">
${sections.map(({ id, heading, body }) => html`<h2 id="${id}">${heading}</h2>\n${body}`)}
</div>
</div>
</section>
${operationIndex(groups)}
${groups.map(groupSection)}
${healthSection()}
${errorSection(document)}`,
  });
}

function navigation(sections: ReturnType<typeof readSections>, groups: ReferenceGroup[]): Html {
  return navigationGroups([
    {
      title: 'Introduction',
      links: [
        { href: '#first-request', text: 'A first request' },
        ...sections.map(({ id, heading }) => ({ href: `#${id}`, text: heading })),
        { href: '#operations', text: 'All operations' },
      ],
    },
    ...groups.map(({ name, operations }) => ({
      title: name,
      links: operations.map(({ id, title, version }) => {
        return { href: `#${id}`, text: html`${title}${versionChip(version)}` };
      }),
    })),
    { title: 'Admin port', links: [{ href: '#health', text: 'Health and metrics' }] },
    {
      title: 'Errors',
      links: [
        { href: '#error-codes', text: 'Error codes' },
        { href: '#error-bodies', text: 'Error bodies' },
      ],
    },
  ]);
}

/** A first example: how to send the key. */
function firstRequest([{ operations }]: ReferenceGroup[]): Html {
  const [{ request, response }] = operations[0].examples;
  return html`<h2 id="first-request">A first request</h2>
<p>The first start of a server prints its key. Set it in a variable:</p>
${codeBlock("export WEIR_KEY='weir_…'")}
${request && curlBlock(request)}
<p>The response:</p>
${response && jsonBlock(response.value)}`;
}

function operationIndex(groups: readonly ReferenceGroup[]): Html {
  return html`<section aria-labelledby="operations">
<h2 id="operations">All operations</h2>
${groups.map(({ id, name, operations }) => {
  return html`<h3 id="operations-${id}">${name}</h3>\n${operationLinks(operations)}`;
})}
</section>`;
}

function operationLinks(operations: readonly ReferenceOperation[]): Html {
  return html`<ul class="index">
${operations.map((operation) => {
  const { id, path, title } = operation;
  return html`<li><a href="#${id}">${methodBadge(operation)} ${breakableCode(path)}</a>
<span>${title}</span></li>
`;
})}</ul>`;
}

function groupSection({ id, name, description, operations }: ReferenceGroup): Html {
  return html`<section aria-labelledby="${id}">
<h2 id="${id}">${name}</h2>
<p>${renderInline(description)}</p>
${operations.map((operation) => operationSection(operation, ERROR_PAGES))}
</section>
`;
}

const PROBES: readonly [path: string, description: string][] = [
  ['/livez', 'Liveness: a 200 while the process runs.'],
  [
    '/readyz',
    'Readiness: a 200 while checks are answered, a 503 while weir starts, joins or drains.',
  ],
  ['/metrics', 'Metrics in the text format of Prometheus.'],
];

function healthSection(): Html {
  const url = `http://127.0.0.1:${annotations('adminPort').default}`;
  const rows = PROBES.map(([path, description]) => {
    return html`<tr><th scope="row"><code>GET ${path}</code></th><td>${description}</td></tr>\n`;
  });
  return html`<section aria-labelledby="health">
<h2 id="health">Health and metrics</h2>
<p>These are on the admin port, <code>${url}</code> by default. They need no key.</p>
<table><thead><tr><th scope="col">Request</th><th scope="col">Response</th></tr></thead>
<tbody>${rows}</tbody></table>
${codeBlock(`curl ${url}/readyz`)}
</section>
`;
}

function errorSection({ components }: OpenApiDocument): Html {
  const rows = ERROR_CODES.map((code) => {
    const { status, title } = ERRORS[code];
    return html`<tr><th scope="row">${statusBadge(Number.parseInt(status, 10))}
<a href="${ERROR_PAGES}${code}">${breakableCode(code)}</a></th><td>${title}</td></tr>
`;
  });
  const { V1Error, V2Error } = components.schemas;
  return html`<section aria-labelledby="error-codes">
<h2 id="error-codes">Error codes</h2>
<p>Each code has a page that says what to do.</p>
<table class="errors"><thead><tr><th scope="col">Code</th><th scope="col">Meaning</th></tr></thead>
<tbody>${rows}</tbody></table>
<h2 id="error-bodies">Error bodies</h2>
<h3 id="error-body-v1">Errors of v1 and of gateway checks</h3>
${fieldList(V1Error, 'response')}
<h3 id="error-body-v2">Errors of v2</h3>
${fieldList(V2Error, 'response')}
</section>
`;
}
