/**
 * The documentation that the server has about itself, served without a key: the OpenAPI document,
 * the API reference, and the pages that the `docs` links of errors refer to, one for each code. All
 * are files of the package; `npm run docs` writes them.
 *
 * Files are read at their first request: few servers receive such a request, and each acceptor that
 * does keeps a copy. A file that is missing from the installation is a 500.
 */

import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { PAGE_HEADERS } from '../api/common/page-headers.ts';
import { ERROR_PAGES_PATH, OPENAPI_PATH, REFERENCE_PATH } from '../api/common/paths.ts';
import { ERRORS } from '../core/errors.ts';
import { packageFile } from '../core/package-files.ts';
import type { Responder } from './responder.ts';
import type { Route } from './route.ts';
import { fixedText } from './uws.ts';

const HTML = 'text/html; charset=utf-8';
const FOLDER = 'docs/reference';

const IF_NONE_MATCH = fixedText('if-none-match');

/** The type and the file of each path. */
const PAGES: Readonly<Record<string, readonly [contentType: string, file: string]>> = {
  [OPENAPI_PATH]: ['application/json', 'docs/openapi.json'],
  [REFERENCE_PATH]: [HTML, `${FOLDER}/index.html`],
  [`${REFERENCE_PATH}/style.css`]: ['text/css; charset=utf-8', `${FOLDER}/style.css`],
  [`${REFERENCE_PATH}/icon.svg`]: ['image/svg+xml', `${FOLDER}/icon.svg`],
  ...Object.fromEntries(
    Object.keys(ERRORS).map((code) => {
      return [ERROR_PAGES_PATH + code, [HTML, `${FOLDER}/errors/${code}.html`]];
    }),
  ),
};

/** The files that the pages are read from, by their path in the package. */
export const PAGE_FILES: readonly string[] = Object.values(PAGES).map(([, file]) => file);

export function docsRoutes(responder: Responder): Route[] {
  const pages = Object.entries(PAGES).map(([path, [contentType, file]]) => {
    return pageRoute(responder, path, contentType, new KeptFile(file));
  });
  return [...pages, slashRoute(responder)];
}

/** The links of the reference are relative to its path without a slash at the end. */
function slashRoute(responder: Responder): Route {
  const location = `..${REFERENCE_PATH}`;
  const headers = { 'Content-Type': 'text/plain; charset=utf-8', Location: location };
  const body = Buffer.from(`The API reference is at ${location}\n`);
  return {
    method: 'GET',
    path: `${REFERENCE_PATH}/`,
    handle: (res, req) => {
      const isHead = req.getCaseSensitiveMethod() === 'HEAD';
      responder.sendPage(res, '308 Permanent Redirect', headers, body, isHead);
    },
    isPage: true,
  };
}

function pageRoute(responder: Responder, path: string, contentType: string, file: KeptFile): Route {
  return {
    method: 'GET',
    path,
    handle: (res, req) => {
      const isHead = req.getCaseSensitiveMethod() === 'HEAD';
      const { bytes, etag } = file.read();
      const headers = { 'Content-Type': contentType, ETag: etag, ...PAGE_HEADERS };
      const isUnchanged = matches(req.getHeader(IF_NONE_MATCH), etag);
      const status = isUnchanged ? '304 Not Modified' : '200 OK';
      responder.sendPage(res, status, headers, bytes, isHead);
    },
    isPage: true,
  };
}

/** @param condition the header If-None-Match: entity tags, or `*` */
function matches(condition: string, etag: string): boolean {
  if (condition === '') return false;
  return condition.split(',').some((tag) => ['*', etag, `W/${etag}`].includes(tag.trim()));
}

interface Page {
  bytes: Uint8Array;
  etag: string;
}

/** A file of the installed package, in the memory of this thread from its first use on. */
class KeptFile {
  readonly #path: string;
  #page: Page | undefined;

  /** @param path in the package */
  constructor(path: string) {
    this.#path = path;
  }

  /** @throws if the package does not have the file */
  read(): Page {
    this.#page ??= readPage(packageFile(this.#path));
    return this.#page;
  }
}

function readPage(path: string): Page {
  const bytes = readFileSync(path);
  const digest = createHash('sha256').update(bytes).digest('base64url');
  return { bytes, etag: `"${digest.slice(0, 22)}"` };
}
