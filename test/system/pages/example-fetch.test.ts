/** The example with `fetch`, and how its server behaves when weir is slow. */

import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import {
  freePort,
  ROOT_KEY,
  removeDirectory,
  type ServerProcess,
  startServer,
  suspendProcess,
  temporaryDirectory,
} from '../../support/server.ts';
import {
  type Gateway,
  type RecordingProxy,
  sendSequentially,
  sendThrough,
  startGateway,
  startRecordingProxy,
} from '../gateways/gateway-process.ts';
import { followPage, PAGE_TIMEOUT_MS } from './page-follower.ts';
import { canRunPages } from './page-runner.ts';

const SERVER = new URL('../../../examples/fetch/server.mjs', import.meta.url).pathname;

describe('the example with fetch', () => {
  const dataDir = temporaryDirectory();
  let weir: ServerProcess;
  let proxy: RecordingProxy;
  let server: Gateway;
  beforeAll(async () => {
    weir = await startServer(dataDir, { args: ['--counters', '1024'] });
    proxy = await startRecordingProxy(weir.port);
    const port = await freePort();
    const env = { WEIR_URL: `http://127.0.0.1:${proxy.port}`, WEIR_KEY: ROOT_KEY, PORT: `${port}` };
    const command = () => [process.execPath, SERVER];
    server = await startGateway({ configuration: '', fileName: 'none', port, command, env });
  });
  afterAll(async () => {
    await server.stop();
    await proxy.stop();
    await weir.stop();
    removeDirectory(dataDir);
  });

  test.skipIf(!canRunPages())(
    'does what its README shows',
    () => followPage('examples/fetch/README.md'),
    PAGE_TIMEOUT_MS,
  );

  test('sends all checks on one connection, and never repeats one', async () => {
    // Five are allowed in a window of a minute, which may end meanwhile: one of eleven is denied.
    const responses = await sendSequentially(
      server.port,
      Array.from({ length: 11 }, () => ({})),
    );
    expect(responses.some(({ status }) => status === 429)).toBe(true);
    expect(proxy.connections()).toBe(1);
    expect(proxy.bytesToWeir().match(/POST \/v2\//g)).toHaveLength(11);
  });

  test('allows a request after the timeout if weir is unresponsive', async () => {
    await suspendProcess(weir);
    try {
      expect(await sendThrough(server.port)).toMatchObject({ status: 200, body: 'results\n' });
    } finally {
      weir.child.kill('SIGCONT');
    }
  });
});
