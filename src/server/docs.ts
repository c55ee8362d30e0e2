/**
 * The documentation that the server has about itself, served without a key: the OpenAPI document,
 * the API reference, and the pages that the `docs` links of errors refer to, one for each code. All
 * are files of the package.
 *
 * Pages show the base URL by which the client reaches the server: WEIR_PUBLIC_URL, else the header
 * `Host`. Each page is kept with the last base URL only. With another one it is made again, in less
 * than a millisecond, so that clients cannot cause more to be kept.
 *
 * Files are read at their first request: few servers receive such a request, and each acceptor that
 * does keeps a copy. A file that is missing from the installation is a 500.
 */

import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { PAGE_HEADERS } from '../api/common/page-headers.ts';
import {
  ERROR_PAGES_PATH,
  EXAMPLE_BASE_URL,
  OPENAPI_PATH,
  REFERENCE_PATH,
} from '../api/common/paths.ts';
import { ERRORS } from '../core/errors.ts';
import { packageFile } from '../core/package-files.ts';
import type { Responder } from './responder.ts';
import { fixedPage, type Page } from './response-writer.ts';
import type { Route } from './route.ts';
import { fixedText, type HttpRequest } from './uws.ts';

const HTML = 'text/html; charset=utf-8';
/** The build writes the pages. */
const FOLDER = 'dist/docs';

const HOST = fixedText('host');
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

/**
 * A host name or an address, and a port. Its characters need no escape in HTML, JSON and a shell.
 * `isHost` also checks the port and the parts of an address.
 */
const HOST_PATTERN = /^(\w[\w.-]{0,252}|\[[\da-f:.]{2,45}\])(:\d{1,5})?$/i;

function isHost(text: string): boolean {
  return HOST_PATTERN.test(text) && URL.canParse(`http://${text}`);
}

export class Docs {
  readonly #responder: Responder;
  /** Replaces the header `Host`. */
  readonly #publicUrl: string | undefined;
  /** Without a valid header `Host`. */
  readonly #defaultUrl: string;
  readonly #files = Object.entries(PAGES).map(([path, [contentType, file]]) => {
    return { path, contentType, file: new KeptFile(file) };
  });

  /** @param url base URL of the service in links; '' if it is unknown */
  constructor(responder: Responder, url: string, isPublicUrl: boolean) {
    this.#responder = responder;
    // A path may have other characters, which a page would have to escape.
    const plainUrl = url.replace(/[^\w.~:/%[\]-]/g, encodeCharacter);
    this.#defaultUrl = url === '' ? EXAMPLE_BASE_URL : plainUrl;
    this.#publicUrl = isPublicUrl ? plainUrl : undefined;
  }

  /** @param scheme of the App that serves the routes */
  routes(scheme: 'http' | 'https'): Route[] {
    const pages = this.#files.map(({ path, contentType, file }): Route => {
      return {
        method: 'GET',
        path,
        handle: (res, req) => {
          const { page, etag } = file.read(this.#baseUrl(scheme, req.getHeader(HOST)));
          const headers = {
            'Content-Type': contentType,
            ETag: etag,
            ...PAGE_HEADERS,
          };
          const isUnchanged = matches(req.getHeader(IF_NONE_MATCH), etag);
          const status = isUnchanged ? '304 Not Modified' : '200 OK';
          this.#responder.sendPage(res, status, headers, page, isHead(req));
        },
        isPage: true,
      };
    });
    return [...pages, this.#slashRoute()];
  }

  #baseUrl(scheme: string, host: string): string {
    return this.#publicUrl ?? (isHost(host) ? `${scheme}://${host}` : this.#defaultUrl);
  }

  /** The links of the reference are relative to its path without a slash at the end. */
  #slashRoute(): Route {
    const location = `..${REFERENCE_PATH}`;
    const headers = { 'Content-Type': 'text/plain; charset=utf-8', Location: location };
    const page = fixedPage(Buffer.from(`The API reference is at ${location}\n`));
    return {
      method: 'GET',
      path: `${REFERENCE_PATH}/`,
      handle: (res, req) => {
        this.#responder.sendPage(res, '308 Permanent Redirect', headers, page, isHead(req));
      },
      isPage: true,
    };
  }
}

function isHead(req: HttpRequest): boolean {
  return req.getCaseSensitiveMethod() === 'HEAD';
}

function encodeCharacter(character: string): string {
  return `%${character.charCodeAt(0).toString(16).toUpperCase().padStart(2, '0')}`;
}

/** @param condition the header If-None-Match: entity tags, or `*` */
function matches(condition: string, etag: string): boolean {
  if (condition === '') return false;
  return condition.split(',').some((tag) => ['*', etag, `W/${etag}`].includes(tag.trim()));
}

/** A file of the installed package, in the memory of this thread from its first use on. */
class KeptFile {
  readonly #path: string;
  #text: TextWithUrls | undefined;

  /** @param path in the package */
  constructor(path: string) {
    this.#path = path;
  }

  /** @throws if the package does not have the file */
  read(baseUrl: string): { page: Page; etag: string } {
    this.#text ??= new TextWithUrls(readFileSync(packageFile(this.#path), 'utf8'));
    return this.#text.withBaseUrl(baseUrl);
  }
}

/** A text whose base URL is replaced. */
class TextWithUrls {
  /** What is between the base URLs. */
  readonly #parts: readonly Buffer[];
  readonly #size: number;
  readonly #digest: Buffer;
  /** The bytes with the last base URL, which the next one replaces. */
  #bytes = Buffer.alloc(0);
  #baseUrl: string | undefined;

  constructor(text: string) {
    this.#parts = text.split(EXAMPLE_BASE_URL).map((part) => Buffer.from(part));
    this.#size = this.#parts.reduce((sum, { length }) => sum + length, 0);
    this.#digest = createHash('sha256').update(text).digest();
  }

  /** @param baseUrl of ASCII characters */
  withBaseUrl(baseUrl: string): { page: Page; etag: string } {
    // A text without a base URL is the same for all.
    const shown = this.#parts.length === 1 ? '' : baseUrl;
    const size = this.#size + (this.#parts.length - 1) * shown.length;
    const hash = createHash('sha256').update(this.#digest).update(shown).digest('base64url');
    const from = (offset: number) => this.#bytesWith(shown).subarray(offset, size);
    return { page: { size, from }, etag: `"${hash.slice(0, 22)}"` };
  }

  /** The same buffer each time: a client could cause much garbage with ever new names. */
  #bytesWith(baseUrl: string): Uint8Array {
    if (this.#baseUrl === baseUrl) return this.#bytes;
    const size = this.#size + (this.#parts.length - 1) * baseUrl.length;
    if (this.#bytes.length < size) this.#bytes = Buffer.allocUnsafeSlow(size);
    let end = 0;
    for (const [i, part] of this.#parts.entries()) {
      if (i > 0) end += this.#bytes.write(baseUrl, end, 'latin1');
      end += part.copy(this.#bytes, end);
    }
    this.#baseUrl = baseUrl;
    return this.#bytes;
  }
}
