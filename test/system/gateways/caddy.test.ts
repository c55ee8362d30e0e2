/** Caddy with the configuration that weir prints for it. */

import { type AddressInfo, connect, createServer, type Socket } from 'node:net';
import { join } from 'node:path';
import { afterEach, describe, expect, test } from 'vitest';
import { everyPath } from '../../../src/commands/gateways/setup.ts';
import { readPolicies } from '../../../src/policies/policy.ts';
import { LONGEST_WINDOW_MS } from '../../support/http.ts';
import { writeConfig } from '../../support/policy-config.ts';
import {
  freePort,
  removeDirectory,
  startServer,
  temporaryDirectory,
} from '../../support/server.ts';
import { defineGatewayTests } from './gateway-cases.ts';
import { sendSequentially, startApplication } from './gateway-process.ts';
import { realCaddy } from './real-gateways.ts';

/** Forwards the first `count` connections to the port `first`, and all others to `others`. */
async function startFlakyServer(first: number, count: number, others: number) {
  const sockets = new Set<Socket>();
  let seen = 0;
  const server = createServer((near) => {
    const far = connect(seen++ < count ? first : others, '127.0.0.1');
    for (const [socket, other] of [
      [near, far],
      [far, near],
    ]) {
      sockets.add(socket);
      socket.pipe(other);
      socket.on('error', () => other.destroy());
      socket.on('close', () => other.destroy());
    }
  });
  await new Promise<void>((listening) => server.listen(0, '127.0.0.1', listening));
  const { port } = server.address() as AddressInfo;
  const stop = () => {
    for (const socket of sockets) socket.destroy();
    server.close();
  };
  return { port, stop };
}

describe.skipIf(realCaddy.isMissing)('Caddy', () => {
  defineGatewayTests({ ...realCaddy, isProxy: true });

  const stops: (() => unknown)[] = [];
  afterEach(async () => {
    for (const stop of stops.splice(0).reverse()) await stop();
  });

  // Under load Caddy may dial the application for a check: the dial reads its address too late.
  test('a check that has reached the application is repeated, and is no failure of weir', async () => {
    const directory = temporaryDirectory();
    stops.push(() => removeDirectory(directory));
    const policies = {
      login: { gateway: 'caddy', limit: 2, duration: LONGEST_WINDOW_MS, onError: 'allow' },
    } as const;
    const gatewayPort = await freePort();
    const args = ['--config', writeConfig(directory, policies), '--gateway-port', `${gatewayPort}`];
    const weir = await startServer(join(directory, 'data'), { args });
    stops.push(weir.stop);
    const application = await startApplication();
    stops.push(application.stop);
    const { port, stop } = await startFlakyServer(application.port, 1, gatewayPort);
    stops.push(stop);
    const listenPort = await freePort();
    const upstream = { host: '127.0.0.1', port: application.port };
    const at = { host: '127.0.0.1', port, needsKey: false };
    const [policy] = readPolicies(policies);
    const text = realCaddy.print({ routes: everyPath(policy), weir: at, listenPort, upstream });
    const caddy = await realCaddy.start(text, listenPort, '');
    stops.push(caddy.stop);
    const responses = await sendSequentially(listenPort, [{}, {}, {}, {}]);
    expect(responses.map(({ status }) => status)).toEqual([200, 200, 429, 429]);
    expect(responses.filter(({ headers }) => headers.ratelimit === undefined)).toEqual([]);
    const misdirected = application.requests.filter(({ url }) => url.startsWith('/v1/check/'));
    expect(misdirected.length).toBeGreaterThan(0);
  });
});
