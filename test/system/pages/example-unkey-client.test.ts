/**
 * The example with `@unkey/ratelimit` 2.1.4, and what its README says about the client.
 * test/system/clients/unkey-v2.test.ts has its errors.
 */

import { copyFileSync, mkdirSync, symlinkSync } from 'node:fs';
import { join } from 'node:path';
import { Ratelimit, type RatelimitConfig } from 'unkey-ratelimit-v2';
import { describe, expect, test } from 'vitest';
import { useDataDirectory } from '../../support/data-directory.ts';
import {
  freePort,
  ROOT_KEY,
  removeDirectory,
  suspendProcess,
  temporaryDirectory,
  waitUntil,
} from '../../support/server.ts';
import { sendThrough, startGateway, startRecordingProxy } from '../gateways/gateway-process.ts';
import { followPage, PAGE_TIMEOUT_MS } from './page-follower.ts';
import { canRunPages } from './page-runner.ts';

const SERVER = new URL('../../../examples/unkey-client/server.mjs', import.meta.url).pathname;
const PACKAGE = new URL('../../../node_modules/unkey-ratelimit-v2', import.meta.url).pathname;
const FALLBACK = { success: true, limit: 0, remaining: 0, reset: 0 };

/** The repository has this version of the package by another name. */
function installClient(folder: string): void {
  mkdirSync(join(folder, 'node_modules/@unkey'), { recursive: true });
  symlinkSync(PACKAGE, join(folder, 'node_modules/@unkey/ratelimit'));
}

describe('@unkey/ratelimit', () => {
  const own = useDataDirectory(['--counters', '1024']);
  const limiter = (baseUrl: string, more: Partial<RatelimitConfig> = {}) => {
    const limit = { namespace: 'reports', limit: 1, duration: '30d' } as const;
    return new Ratelimit({ baseUrl, rootKey: ROOT_KEY, ...limit, ...more });
  };

  test.skipIf(!canRunPages())(
    'does in the example what its README shows',
    () => followPage('examples/unkey-client/README.md', { prepare: installClient }),
    PAGE_TIMEOUT_MS,
  );

  test('makes only one request in a second wait for a weir that does not respond', async () => {
    const weir = await own.start();
    const folder = temporaryDirectory();
    installClient(folder);
    const copy = join(folder, 'server.mjs');
    copyFileSync(SERVER, copy);
    const port = await freePort();
    const env = { WEIR_URL: weir.url, WEIR_KEY: ROOT_KEY, PORT: `${port}` };
    const command = () => [process.execPath, copy];
    const server = await startGateway({
      ...{ configuration: '', fileName: 'none', port, command, env },
    });
    try {
      expect((await sendThrough(port)).status).toBe(200);
      await suspendProcess(weir);
      await sendThrough(port);
      const start = performance.now();
      const answers: number[] = [];
      while (performance.now() - start < 4_000) answers.push((await sendThrough(port)).status);
      expect(new Set(answers)).toEqual(new Set([200]));
      // Two checks that wait for 1 s each, and all other requests in the seconds between them.
      expect(answers.length).toBeGreaterThan(20);
      weir.child.kill('SIGCONT');
      await waitUntil('weir decides again', async () => {
        const { headers } = await sendThrough(port);
        return headers.ratelimit !== undefined;
      });
    } finally {
      weir.child.kill('SIGCONT');
      await server.stop();
      removeDirectory(folder);
    }
  }, 30_000);

  test('decides by itself if weir is stopped: by its fallback, or a denial after 5 s', async () => {
    const weir = await own.start();
    await weir.stop();
    const decide = (more?: Partial<RatelimitConfig>) => limiter(weir.url, more).limit('alice');
    const timeout = { ms: 1_000, fallback: FALLBACK };
    const [denied, allowed] = await Promise.all([decide(), decide({ timeout })]);
    expect(denied).toMatchObject({ success: false, limit: 0 });
    expect(allowed).toEqual(FALLBACK);
  });

  test('repeats a denial from its memory, without a check', async () => {
    const weir = await own.start();
    const proxy = await startRecordingProxy(weir.port);
    const client = limiter(`http://127.0.0.1:${proxy.port}`);
    const decisions: boolean[] = [];
    for (let i = 0; i < 4; i++) decisions.push((await client.limit('alice')).success);
    await proxy.stop();
    expect(decisions).toEqual([true, false, false, false]);
    expect(proxy.bytesToWeir().match(/POST \/v2\//g)).toHaveLength(2);
  });
});
