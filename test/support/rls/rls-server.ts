/** Gives the tests of a file or of a group one server with the rate limit service, and its client. */

import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { isDeepStrictEqual } from 'node:util';
import { afterAll, beforeAll, expect } from 'vitest';
import { readMetrics } from '../http.ts';
import { freePort, removeDirectory, temporaryDirectory, waitUntil } from '../server.ts';
import { type TestServer, useServer } from '../test-server.ts';
import { RlsClient } from './client.ts';

type ServerOptions = Parameters<typeof useServer>[0];

/** The hits of limits by path and by result, without those that are 0. */
export type Hits = Record<string, Record<string, number>>;

/** The texts of files, by name. */
export type RuleFiles = Readonly<Record<string, string>>;

export interface RlsServer extends TestServer {
  rlsPort: number;
  /** WEIR_RLS_CONFIG. */
  folder: string;
  rls: RlsClient;
  /** Writes files of rules. */
  write: (files: RuleFiles) => void;
  /** Waits until the metrics have these hits of these limits. */
  expectHits: (expected: Hits) => Promise<void>;
}

/** Call it before other hooks, where tests are described. */
export function useRlsServer({
  files,
  ...options
}: NonNullable<ServerOptions> & { files: RuleFiles }): RlsServer {
  const root = temporaryDirectory();
  const folder = join(root, 'rules');
  const env: Record<string, string | undefined> = { WEIR_RLS_CONFIG: folder };
  const own = {} as Pick<RlsServer, 'rlsPort' | 'rls'>;
  beforeAll(async () => {
    mkdirSync(folder);
    writeFiles(folder, files);
    own.rlsPort = await freePort();
    // A hook of the test may have set variables too.
    Object.assign(env, options.env, { WEIR_RLS_PORT: String(own.rlsPort) });
    own.rls = new RlsClient(`127.0.0.1:${own.rlsPort}`);
    Object.assign(server, own);
  });
  const server = useServer({ ...options, env }) as RlsServer;
  afterAll(() => {
    own.rls?.close();
    removeDirectory(root);
  });
  server.folder = folder;
  server.write = (written) => writeFiles(folder, written);
  server.expectHits = async (expected) => {
    let found: Hits = {};
    const isFound = async () => {
      const all = await hitsOf(server.adminUrl);
      found = Object.fromEntries(Object.keys(expected).map((path) => [path, all[path]]));
      return isDeepStrictEqual(found, expected);
    };
    await waitUntil('the hits are counted', isFound).catch(() => expect(found).toEqual(expected));
  };
  return server;
}

export function writeFiles(folder: string, files: RuleFiles): void {
  for (const [name, text] of Object.entries(files)) writeFileSync(join(folder, name), text);
}

/** The hits of each limit that are not 0. */
export async function hitsOf(adminUrl: string): Promise<Hits> {
  const hits: Hits = {};
  for (const [name, value] of await readMetrics(adminUrl)) {
    const match = /^weir_rls_hits_total\{limit="(.*)",result="(\w+)"\}$/.exec(name);
    if (match === null || value === 0) continue;
    const [, path, result] = match;
    hits[path] ??= {};
    hits[path][result] = value;
  }
  return hits;
}
