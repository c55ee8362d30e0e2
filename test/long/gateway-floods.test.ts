/**
 * Floods through real gateways with the configuration that weir prints. They fail open, so a
 * gateway that mistakes a flood for a failure of weir would exceed the limit. These are
 * the floods of the table in docs/gateways/README.md.
 *
 * The gateway, weir, h2load and the application need two cores for themselves. Beside other load
 * weir may respond later than the timeout of the gateway, which then allows the request. A flood in
 * which the gateway logs that is sent again, with another counter.
 */

import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { everyPath } from '../../src/commands/gateways/setup.ts';
import { readPolicies } from '../../src/policies/policy.ts';
import { recordMeasurement } from '../support/guarantees.ts';
import { LONGEST_WINDOW_MS } from '../support/http.ts';
import { writeConfig } from '../support/policy-config.ts';
import { isMissing } from '../support/programs/program.ts';
import {
  freePort,
  removeDirectory,
  type ServerProcess,
  startServer,
  temporaryDirectory,
} from '../support/server.ts';
import {
  type Application,
  type Gateway,
  startApplication,
} from '../system/gateways/gateway-process.ts';
import {
  type RealGateway,
  realCaddy,
  realEnvoy,
  realExpress,
  realFastify,
  realHaproxy,
  realNginx,
} from '../system/gateways/real-gateways.ts';

const run = promisify(execFile);

const FLOOD_TIMEOUT_MS = 120_000;

interface FloodOptions {
  port: number;
  requests: number;
  connections: number;
  /** Concurrent requests on each connection, over HTTP/2 without TLS. Undefined: HTTP/1.1. */
  streams?: number | undefined;
}

interface FloodResult {
  /** Responses with a 2xx status. */
  allowed: number;
  /** Responses with a 4xx status. */
  denied: number;
  /** Responses with a 5xx status, and requests without a response. */
  failed: number;
}

async function runFlood(options: FloodOptions): Promise<FloodResult> {
  const { port, requests, connections, streams } = options;
  const protocol = streams === undefined ? ['--h1'] : ['-p', 'h2c', '-m', String(streams)];
  const size = ['-t', '1', '-n', String(requests), '-c', String(connections)];
  const command = [...protocol, ...size, `http://127.0.0.1:${port}/`];
  const { stdout } = await run('h2load', command, { timeout: FLOOD_TIMEOUT_MS });
  const [, allowed, redirected, denied, broken] =
    /status codes: (\d+) 2xx, (\d+) 3xx, (\d+) 4xx, (\d+) 5xx/.exec(stdout)!.map(Number);
  const responses = allowed + redirected + denied + broken;
  return { allowed, denied, failed: broken + requests - responses };
}

const LIMIT = 100;
const ATTEMPTS = 3;
const TIMED_OUT = /timed out|timeout|weir answered 50\d|weir has not answered/;
const REQUESTS = [6_000, 15_000, 30_000];
type FloodShape = Pick<FloodOptions, 'connections' | 'streams'>;
const BY_HTTP_1: FloodShape[] = [
  { connections: 100 },
  { connections: 1_000 },
  { connections: 3_000 },
];
const BY_HTTP_2: FloodShape[] = [
  { connections: 1, streams: 100 },
  { connections: 15, streams: 100 },
  { connections: 50, streams: 100 },
];

const envoy = await realEnvoy();
const GATEWAYS: (RealGateway & { shapes: FloodShape[] })[] = [
  ...[realNginx, realCaddy, realHaproxy, realExpress, realFastify].map((gateway) => {
    return { ...gateway, shapes: BY_HTTP_1 };
  }),
  { ...envoy, shapes: [...BY_HTTP_2, ...BY_HTTP_1] },
];

/** Each attempt of a flood has its own policy, and therefore its own counter. */
const policyName = (gateway: string, i: number, attempt: number) => `${gateway}-${i}-${attempt}`;
const floodsOf = ({ shapes }: { shapes: FloodShape[] }) => {
  return shapes.flatMap((shape) => REQUESTS.map((requests) => ({ ...shape, requests })));
};
const policies = Object.fromEntries(
  GATEWAYS.flatMap((gateway) => {
    const policy = { gateway: gateway.name, limit: LIMIT, duration: LONGEST_WINDOW_MS };
    return floodsOf(gateway).flatMap((_, i) => {
      return Array.from({ length: ATTEMPTS }, (_, attempt) => [
        policyName(gateway.name, i, attempt),
        { ...policy, onError: 'allow' as const },
      ]);
    });
  }),
);

describe.skipIf(isMissing('h2load', '--version'))(
  'with onError: allow, a flood does not exceed the limit',
  () => {
    const directory = temporaryDirectory();
    let application: Application;
    let weir: ServerProcess;
    let gatewayPort = 0;

    beforeAll(async () => {
      application = await startApplication();
      gatewayPort = await freePort();
      const args = [
        '--config',
        writeConfig(directory, policies),
        '--gateway-port',
        `${gatewayPort}`,
      ];
      weir = await startServer(join(directory, 'data'), { args });
    });
    afterAll(async () => {
      await weir.stop();
      await application.stop();
      removeDirectory(directory);
    });

    async function start(gateway: RealGateway, namespace: string): Promise<Gateway> {
      const [policy] = readPolicies({ [namespace]: policies[namespace] });
      const listen = { host: '127.0.0.1', port: await freePort() };
      // HAProxy also uses the next port.
      await freePort();
      const upstream = { host: '127.0.0.1', port: application.port };
      const at = { host: '127.0.0.1', port: gatewayPort, needsKey: false };
      return gateway.start(
        gateway.print({ routes: everyPath(policy), weir: at, listen, upstream }),
        listen.port,
        '',
      );
    }

    for (const gateway of GATEWAYS) {
      describe.skipIf(gateway.isMissing)(`through ${gateway.name}:`, () => {
        for (const [i, { requests, connections, streams }] of floodsOf(gateway).entries()) {
          const size = `${requests} on ${connections}${streams === undefined ? '' : ` x ${streams}`}`;
          test(size, { timeout: 180_000 }, async () => {
            const flood = async (attempt = 0): ReturnType<typeof runFlood> => {
              const name = policyName(gateway.name, i, attempt);
              const { port, output, stop } = await start(gateway, name);
              const result = await runFlood({ port, requests, connections, streams });
              await stop();
              const mayRepeat = attempt < ATTEMPTS - 1 && TIMED_OUT.test(output());
              return result.allowed > LIMIT && mayRepeat ? flood(attempt + 1) : result;
            };
            const outcome = await flood();
            const measured = `${outcome.allowed} allowed of ${LIMIT}`;
            recordMeasurement('P1', `a flood through ${gateway.name}`, size, measured);
            expect(outcome.allowed).toBe(LIMIT);
            // A busy application may refuse connections. Such requests count as failed, not as
            // allowed.
            expect(outcome.denied).toBeGreaterThan(requests * 0.9);
          });
        }
      });
    }
  },
);
