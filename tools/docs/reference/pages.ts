/**
 * The pages that a server shows at `/docs`: the reference of the API, and one about each error, to
 * which the `docs` or `type` of the error refers. The build writes them into the package.
 */

import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { ERRORS, type ErrorCode, statusOf } from '../../../src/core/errors.ts';
import { errorText } from '../errors.ts';
import { inlineCode, markdownTable } from '../markdown.ts';
import { openApiDocument } from '../openapi.ts';
import type { OpenApiDocument } from '../openapi-types.ts';
import { anchorOf, referenceSections } from './api.ts';
import { jsonBlock } from './examples.ts';
import { navigationGroups, pageHtml } from './frame.ts';
import { html } from './html.ts';
import { readErrorExamples, readGroups } from './model.ts';
import { type Output, requestLine } from './operation.ts';
import { breakableCode, renderMarkdown } from './render.ts';

const ERROR_CODES = Object.keys(ERRORS) as ErrorCode[];

/** Addresses from `/docs`. */
const OUTPUT: Output = {
  errorLink: (code) => `docs/errors/${code}`,
  examplesOf: ({ examples }) => examples,
};
/** The address of `/docs` from `/docs/errors/<code>`. */
const REFERENCE = '../../docs';

/** @param root the directory of the repository @returns the texts by the name of their file */
export function pageFiles(root: string): Map<string, string> {
  const document = openApiDocument();
  const read = (path: string) => readFileSync(join(root, path), 'utf8');
  return new Map([
    ['index.html', referencePage(document)],
    ...ERROR_CODES.map((code) => [`errors/${code}.html`, errorPage(code, document)] as const),
    ['style.css', read('tools/docs/reference/style.css')],
    ['icon.svg', read('src/dashboard/icon.svg')],
  ]);
}

export function referencePage(document: OpenApiDocument): string {
  const { title, version, summary } = document.info;
  const introduction = `${summary} Version ${version}. The same description for programs is
[openapi.json](openapi.json), in OpenAPI ${document.openapi}.`;
  const sections = referenceSections(document, OUTPUT);
  return pageHtml({
    title: `${title} API reference`,
    description: summary,
    reference: 'docs',
    folder: 'docs/',
    openApi: 'openapi.json',
    navigation: navigation(document, sections),
    main: renderMarkdown(`# ${title} API reference\n\n${introduction}\n\n${sections}`),
  });
}

function navigation(document: OpenApiDocument, sections: string) {
  const groups = readGroups(document);
  const names = groups.map(({ name }) => name);
  const headings = [...sections.matchAll(/^## (.*)$/gm)].map(([, heading]) => heading);
  const first = headings.indexOf(names[0]);
  const links = (shown: readonly string[]) => {
    return shown.map((heading) => ({ href: `#${anchorOf(heading)}`, text: heading }));
  };
  return navigationGroups([
    { title: 'Introduction', links: links(headings.slice(0, first)) },
    ...groups.map(({ name, operations }) => ({
      title: name,
      links: operations.map(({ id, title, version }) => {
        const chip = version !== undefined && html` <span class="version">${version}</span>`;
        return { href: `#${anchorOf(id)}`, text: html`${title}${chip}` };
      }),
    })),
    {
      title: 'Health and errors',
      links: links(headings.slice(first).filter((heading) => !names.includes(heading))),
    },
  ]);
}

function errorPage(code: ErrorCode, document: OpenApiDocument): string {
  const links = ERROR_CODES.map((other) => {
    return { href: other, text: breakableCode(other), isCurrent: other === code };
  });
  return pageHtml({
    title: `${code} - weir`,
    description: ERRORS[code].title,
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
    main: renderMarkdown(`# ${inlineCode(code)}\n\n${errorMarkdown(code, document)}`),
  });
}

function errorMarkdown(code: ErrorCode, document: OpenApiDocument): string {
  const examples = readErrorExamples(document, statusOf(code));
  const rows = readGroups(document)
    .flatMap((group) => group.operations)
    .filter(({ responses }) => responses.some((response) => response.code === code))
    .map((operation) => {
      const link = `${REFERENCE}#${anchorOf(operation.id)}`;
      return [`[${inlineCode(requestLine(operation))}](${link})`, operation.title];
    });
  const parts = [
    errorText(code),
    examples.length > 0 && '## Examples',
    ...examples.map(({ version, value }) => `In ${version}:\n\n${jsonBlock(value)}`),
    rows.length > 0 && '## Operations with this error',
    rows.length > 0 && markdownTable(['request', 'purpose'], rows),
  ];
  return parts.filter(Boolean).join('\n\n');
}
