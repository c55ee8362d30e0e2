/** One acceptor listens, and distributes the connections to all acceptors. */

import { execFileSync } from 'node:child_process';
import { type AddressInfo, createServer } from 'node:net';
import { expect, test } from 'vitest';
import { Apps } from '../../src/server/apps.ts';
import { platformPackage } from '../../src/server/binary.ts';
import { Listener } from '../../src/server/listener.ts';
import { measureSpread } from '../support/acceptor-spread.ts';
import { useDataDirectory } from '../support/data-directory.ts';
import { readMetric } from '../support/http.ts';
import { type ServerProcess, waitUntil } from '../support/server.ts';

const args = (acceptors: number) => ['--counters', '1024', '--acceptors', String(acceptors)];
const own = useDataDirectory(args(4));

const targets = (server: ServerProcess, count: number) => {
  return Array.from({ length: count }, () => ({ host: '127.0.0.1', port: server.port }));
};

test('connections are distributed to all acceptors in turn, also when they are few', async () => {
  const server = await own.start();
  for (let i = 0; i < 5; i++) {
    expect(await measureSpread(targets(server, 2))).toEqual([1, 1]);
    expect(await measureSpread(targets(server, 4))).toEqual([1, 1, 1, 1]);
    expect(await measureSpread(targets(server, 8))).toEqual([2, 2, 2, 2]);
  }
  await waitUntil('all are counted as closed', async () => {
    return (await readMetric(server.adminUrl, 'weir_connections')) === 0;
  });
  expect(await server.stop()).toEqual({ code: 0, signal: null });
});

test('a single acceptor gets all connections, and no other process can listen', async () => {
  const server = await own.start({ args: args(1) });
  expect(await measureSpread(targets(server, 4))).toEqual([4]);
  // With SO_REUSEPORT on both sides the other listener would get a share of the connections.
  const platform = platformPackage();
  const load =
    platform === undefined ? "import('uWebSockets.js')" : `Promise.resolve(require('${platform}'))`;
  const script =
    `${load}.then(({ App }) => App().listen('127.0.0.1', ` +
    `${server.port}, (listening) => { console.log(listening !== false); process.exit(); }))`;
  const cwd = new URL('../..', import.meta.url).pathname;
  expect(String(execFileSync(process.execPath, ['-e', script], { cwd })).trim()).toBe('false');
  expect(await server.stop()).toEqual({ code: 0, signal: null });
});

test('a listener returns the address on which it cannot listen', async () => {
  const other = createServer();
  await new Promise<void>((resolve) => other.listen(0, '127.0.0.1', resolve));
  const { port } = other.address() as AddressInfo;
  const apps = new Apps(undefined, false, () => {});
  const gateway = { host: '127.0.0.1', port: undefined, socket: undefined };
  const addresses = { host: '127.0.0.1', port, socket: undefined, gateway };
  expect(new Listener(apps).listen(addresses, [apps.descriptors()])).toBe(`127.0.0.1:${port}`);
  apps.close();
  await new Promise((resolve) => other.close(resolve));
});
