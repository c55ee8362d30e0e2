/** The pages of the API reference, as the server sends them. */

import GithubSlugger from 'github-slugger';
import { type DefaultTreeAdapterMap, parse } from 'parse5';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { ERRORS, type ErrorCode } from '../../../src/core/errors.ts';
import { openApiDocument } from '../../../tools/docs/openapi.ts';
import type { OpenApiDocument, Schema } from '../../../tools/docs/openapi-types.ts';
import { readGroups } from '../../../tools/docs/reference/model.ts';
import { referencePage } from '../../../tools/docs/reference/pages.ts';
import { ERROR_PAGES, PAGE_PATHS } from '../../support/pages.ts';
import { type PolicySettings, writeConfig } from '../../support/policy-config.ts';
import {
  ROOT_KEY,
  removeDirectory,
  type ServerProcess,
  startServer,
  temporaryDirectory,
} from '../../support/server.ts';

type Node = DefaultTreeAdapterMap['node'];
type Element = DefaultTreeAdapterMap['element'];

const CODES = Object.keys(ERRORS);
const PAGES = ['/docs', ...ERROR_PAGES];

/** The elements of a page. @throws if the page is not well-formed */
function readElements(text: string): Element[] {
  const errors: string[] = [];
  const document = parse(text, { onParseError: ({ code }) => errors.push(code) });
  expect(errors).toEqual([]);
  return elementsIn(document);
}

function elementsIn(node: Node): Element[] {
  const children = 'childNodes' in node ? node.childNodes.flatMap(elementsIn) : [];
  return 'tagName' in node ? [node, ...children] : children;
}

function attribute(element: Element, name: string): string | undefined {
  return element.attrs.find((attribute) => attribute.name === name)?.value;
}

/** The text of an element, in one line. */
function textOf(node: Node): string {
  if ('value' in node) return node.value;
  const parts = 'childNodes' in node ? node.childNodes.map(textOf) : [];
  return parts.join('').replace(/\s+/g, ' ').trim();
}

/** The text of an element as it is. */
function rawText(node: Node): string {
  if ('value' in node) return node.value;
  return 'childNodes' in node ? node.childNodes.map(rawText).join('') : '';
}

function byTag(elements: readonly Element[], ...names: string[]): Element[] {
  return elements.filter(({ tagName }) => names.includes(tagName));
}

/** The fields of a schema and of the schemas in it, with their descriptions. */
function fieldsIn(schema: Schema): [name: string, description: string | undefined][] {
  const own = Object.entries(schema.properties ?? {}).flatMap(([name, field]) => {
    return [[name, field.description] as [string, string | undefined], ...fieldsIn(field)];
  });
  return schema.items === undefined ? own : [...own, ...fieldsIn(schema.items)];
}

/** What a printed command of curl sends, as a shell splits it into words. */
function readCommand(command: string): { url: string } & RequestInit {
  const text = command.replace(/\\\n/g, ' ').replaceAll('$WEIR_KEY', ROOT_KEY);
  const words = [...text.matchAll(/'([^']*)'|"([^"]*)"|[^\s'"]+/g)].map(([all, one, two]) => {
    return one ?? two ?? all;
  });
  const request = { url: '', headers: {} as Record<string, string> };
  const init: RequestInit = {};
  for (let i = 1; i < words.length; i++) {
    const word = words[i];
    if (/^https?:/.test(word)) request.url = word;
    else if (word === '-H') {
      const [, name, value] = /^([^:]+): (.*)$/s.exec(words[++i])!;
      request.headers[name] = value;
    } else if (word === '-d') Object.assign(init, { method: 'POST', body: words[++i] });
    else if (word === '-X') init.method = words[++i];
    else if (!/^-[is]+$/.test(word)) throw new Error(`${word} is not known in ${command}`);
  }
  return { ...request, ...init };
}

/** The names of a field and of the fields around it, as in `data.limits[].passed`. */
const namesIn = (path: string) => path.replaceAll('[]', '').split('.');

const anchorOf = (heading: string) => new GithubSlugger().slug(heading);

/** Markdown as the page shows it. */
const withoutMarkup = (markdown: string) => markdown.replaceAll('`', '').replace(/\s+/g, ' ');

describe('the API reference', () => {
  const dataDir = temporaryDirectory();
  const directory = temporaryDirectory();
  let server: ServerProcess;
  const texts = new Map<string, string>();
  let style: string;
  beforeAll(async () => {
    const policy: PolicySettings = {
      limit: 100,
      duration: 60_000,
      gateway: ['nginx', 'caddy', 'envoy'],
    };
    const config = writeConfig(directory, { login: policy });
    server = await startServer(dataDir, {
      args: ['--counters', '1024', '--acceptors', '1', '--config', config],
    });
    // The server closes an idle connection while pages are parsed, which takes seconds.
    const init = { headers: { Connection: 'close' } };
    const read = async (path: string) => (await fetch(server.url + path, init)).text();
    for (const path of PAGES) texts.set(path, await read(path));
    style = await read('/docs/style.css');
  });
  afterAll(async () => {
    await server.stop();
    for (const path of [dataDir, directory]) removeDirectory(path);
  });

  test('shows every operation with its path, permissions, fields and responses', () => {
    const document = openApiDocument();
    const elements = readElements(texts.get('/docs')!);
    const articles = new Map(
      byTag(elements, 'article').map((article) => [attribute(article, 'aria-labelledby'), article]),
    );
    const operations = readGroups(document).flatMap((group) => group.operations);
    const bodies = ['errors-of-v1-and-of-gateway-checks', 'errors-of-v2'];
    expect([...articles.keys()]).toEqual([...operations.map(({ id }) => anchorOf(id)), ...bodies]);
    for (const { id, path, operation, body, responses } of operations) {
      const article = articles.get(anchorOf(id))!;
      const text = textOf(article);
      const names = byTag(elementsIn(article), 'code')
        .filter((code) => attribute(code, 'class') === 'name')
        .flatMap((code) => namesIn(textOf(code)));
      expect([id, text]).toEqual([id, expect.stringContaining(path)]);
      const also = operation['x-also-permissions'] ?? [];
      for (const permission of [...(operation['x-permissions'] ?? []), ...also]) {
        expect(text).toContain(permission);
      }
      for (const { name, description } of operation.parameters ?? []) {
        expect([id, names]).toEqual([id, expect.arrayContaining([name])]);
        expect(text).toContain(withoutMarkup(description));
      }
      const results = responses.filter(({ code }) => code === undefined);
      for (const schema of [body, ...results.map(({ schema }) => schema)]) {
        if (schema === undefined) continue;
        for (const [name, description] of fieldsIn(schema)) {
          expect([id, names]).toEqual([id, expect.arrayContaining([name])]);
          if (description) expect(text).toContain(withoutMarkup(description));
        }
      }
      for (const { status, code } of responses) {
        expect([id, text]).toEqual([id, expect.stringContaining(`${status}`)]);
        const hrefs = byTag(elementsIn(article), 'a').map((link) => attribute(link, 'href'));
        if (code)
          expect([id, hrefs]).toEqual([id, expect.arrayContaining([`docs/errors/${code}`])]);
      }
    }
  });

  test('prints commands that the server accepts', async () => {
    const elements = readElements(texts.get('/docs')!);
    let sent = 0;
    for (const example of byTag(elements, 'details')) {
      const [summary] = byTag(elementsIn(example), 'summary').map(textOf);
      const command = byTag(elementsIn(example), 'code').map(rawText)[0];
      if (!command.startsWith('curl ')) continue;
      const status = Number(/\d+$/.exec(summary)?.[0]);
      const { url, ...init } = readCommand(command);
      const local = url.replace('http://127.0.0.1:7070', server.url);
      const { status: received } = await fetch(local, init);
      // The objects of an example may be absent here, and its limits are not reached.
      const accepted = status === 400 ? [400] : [200, 404, status];
      expect([summary, command, accepted]).toEqual([
        summary,
        command,
        expect.arrayContaining([received]),
      ]);
      sent++;
    }
    expect(sent).toBeGreaterThan(50);
  });

  test('shows the introduction, every group and the bodies of errors', () => {
    const document = openApiDocument();
    const text = textOf(parse(texts.get('/docs')!));
    for (const { name, description } of document.tags) {
      expect(text).toContain(name);
      expect(text).toContain(withoutMarkup(description));
    }
    for (const line of document.info.description.split(/\n+/)) {
      expect(text).toContain(withoutMarkup(line.replace(/^(## |- )/, '')));
    }
    const { V1Error, V2Error, Problem } = document.components.schemas;
    for (const [name, description] of [V1Error, V2Error, Problem].flatMap(fieldsIn)) {
      expect(text).toContain(name);
      if (description) expect(text).toContain(withoutMarkup(description));
    }
  });

  test.each(CODES)('has a page about %s with its meaning, its causes and its remedy', (code) => {
    const { status, title, causes, remedy } = ERRORS[code as ErrorCode];
    const text = textOf(parse(texts.get(`/docs/errors/${code}`)!));
    for (const part of [code, status, title, ...causes, remedy]) {
      expect(text).toContain(withoutMarkup(part));
    }
  });

  test('has links to pages and headings that exist, and to no other server', () => {
    for (const [path, text] of texts) {
      const elements = readElements(text);
      const ids = elements.flatMap((element) => attribute(element, 'id') ?? []);
      expect(new Set(ids).size).toBe(ids.length);
      for (const element of elements) {
        const labels = attribute(element, 'aria-labelledby');
        if (labels !== undefined)
          expect([path, ids]).toEqual([path, expect.arrayContaining([labels])]);
        for (const name of ['href', 'src']) {
          const link = attribute(element, name);
          if (link === undefined) continue;
          const { origin, pathname, hash } = new URL(link, server.url + path);
          const isHere = origin === new URL(server.url).origin;
          const isKnown = isHere && PAGE_PATHS.includes(pathname);
          const anchor = `id="${decodeURIComponent(hash.slice(1))}"`;
          const hasAnchor = hash === '' || texts.get(pathname)?.includes(anchor);
          expect([path, link, isKnown, hasAnchor]).toEqual([path, link, true, true]);
        }
      }
    }
    expect(style).not.toMatch(/url\(|@import/);
  });

  test('has one h1, headings without a gap, and no script or inline style', () => {
    for (const [path, text] of texts) {
      const elements = readElements(text);
      const levels = byTag(elements, 'h1', 'h2', 'h3', 'h4', 'h5').map(({ tagName }) => {
        return Number(tagName.slice(1));
      });
      expect([path, levels.filter((level) => level === 1)]).toEqual([path, [1]]);
      const gaps = levels.filter((level, i) => level > (levels[i - 1] ?? 0) + 1);
      expect([path, gaps]).toEqual([path, []]);
      expect([path, byTag(elements, 'script', 'style', 'iframe', 'form')]).toEqual([path, []]);
      const names = elements.flatMap(({ attrs }) => attrs.map(({ name }) => name));
      expect([path, names.filter((name) => /^(style|on.*)$/.test(name))]).toEqual([path, []]);
    }
  });
});

test('an operation that requires one of two fields says so', () => {
  const text = textOf(parse(referencePage(openApiDocument())));
  // The body of setOverride and deleteOverride, and the items of an import.
  expect(text.split('namespaceId or namespaceName is required.').length - 1).toBeGreaterThanOrEqual(
    3,
  );
});

test('markup in the document is shown as text', () => {
  const hostile = `<script>alert("1")</script><img src=x onerror='a'> [a](http://example.com)`;
  const document = JSON.parse(JSON.stringify(openApiDocument()), (key, value) => {
    if (key === 'info') return { ...value, summary: hostile };
    if (['summary', 'description', 'identifier'].includes(key) && typeof value === 'string') {
      return `${value} ${hostile}`;
    }
    return value;
  }) as OpenApiDocument;
  const elements = readElements(referencePage(document));
  expect(byTag(elements, 'script')).toEqual([]);
  expect(byTag(elements, 'img').map((image) => attribute(image, 'src'))).toEqual(['docs/icon.svg']);
  const hrefs = elements.flatMap((element) => attribute(element, 'href') ?? []);
  expect(hrefs.filter((href) => href.includes(':'))).toEqual([]);
  const text = textOf(parse(referencePage(document)));
  expect(text.split(hostile).length).toBeGreaterThan(200);
});
