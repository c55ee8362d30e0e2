/**
 * The files of the dashboard, which the build has compressed. The names of all but the page contain
 * a hash of the content, so browsers keep them for good. Files are read from the disk at each
 * request: few requests come, and the memory of the main thread is small.
 */

import { createHash } from 'node:crypto';
import { createReadStream, readdirSync, readFileSync } from 'node:fs';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { extname, join } from 'node:path';
import { pipeline } from 'node:stream';
import { createGunzip } from 'node:zlib';
import { packageFile } from '../../core/package-files.ts';

const FOLDER = 'dist/dashboard';
const COMPRESSED = '.gz';
const PAGE = 'index.html';
export const FILES_PATH = '/dashboard/assets/';

const TYPES: Readonly<Record<string, string>> = {
  '.html': 'text/html; charset=utf-8',
  '.js': 'text/javascript; charset=utf-8',
  '.css': 'text/css; charset=utf-8',
  '.svg': 'image/svg+xml',
};

interface DashboardFile {
  path: string;
  type: string;
  bytes: number;
  etag: string;
}

export class DashboardFiles {
  readonly #byName: ReadonlyMap<string, DashboardFile>;

  /** @throws if the package does not have the files */
  constructor() {
    const folder = packageFile(FOLDER);
    const names = readdirSync(folder).filter((name) => name.endsWith(COMPRESSED));
    this.#byName = new Map(
      names.map((compressed) => {
        const name = compressed.slice(0, -COMPRESSED.length);
        return [name, describeFile(join(folder, compressed), TYPES[extname(name)])];
      }),
    );
    if (!this.#byName.has(PAGE)) throw new Error(`${folder} has no ${PAGE}${COMPRESSED}`);
  }

  /**
   * Answers a request for a file.
   * @param path `/`, or below FILES_PATH
   * @returns false where there is no such file
   */
  send(
    req: IncomingMessage,
    res: ServerResponse,
    path: string,
    headers: Readonly<Record<string, string>>,
  ): boolean {
    const name = path === '/' ? PAGE : path.slice(FILES_PATH.length);
    const file = this.#byName.get(name);
    if (file === undefined || (path !== '/' && name === PAGE)) return false;
    const caching =
      name === PAGE
        ? { 'Cache-Control': 'no-cache', Vary: 'Accept, Accept-Encoding' }
        : { 'Cache-Control': 'public, max-age=31536000, immutable', Vary: 'Accept-Encoding' };
    const head = { ...headers, ...caching, ETag: file.etag };
    if (req.headers['if-none-match'] === file.etag) {
      res.writeHead(304, head).end();
      return true;
    }
    const acceptsGzip = /\bgzip\b(?!\s*;\s*q=0(\.0*)?\s*(,|$))/i.test(
      String(req.headers['accept-encoding'] ?? ''),
    );
    res.writeHead(200, {
      ...head,
      'Content-Type': file.type,
      ...(acceptsGzip && { 'Content-Encoding': 'gzip', 'Content-Length': file.bytes }),
    });
    if (req.method === 'HEAD') res.end();
    // An error of the disk or a disconnect ends the response, which the client sees as incomplete.
    else if (acceptsGzip) pipeline(createReadStream(file.path), res, () => {});
    else pipeline(createReadStream(file.path), createGunzip(), res, () => {});
    return true;
  }
}

function describeFile(path: string, type: string): DashboardFile {
  const bytes = readFileSync(path);
  const digest = createHash('sha256').update(bytes).digest('base64url');
  // Weak: the tag is the same for the compressed and the other form.
  return { path, type, bytes: bytes.length, etag: `W/"${digest.slice(0, 22)}"` };
}
