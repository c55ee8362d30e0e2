/**
 * Clients that send a request every 9 to 13 s. uWebSockets.js closes a connection after 10 s
 * without a request. A request that is sent while the server closes the connection would be lost.
 */

import { Agent, request as httpRequest } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { useDataDirectory } from '../../support/data-directory.ts';
import { IS_LONG, recordMeasurement } from '../../support/guarantees.ts';
import { ROOT_KEY } from '../../support/server.ts';
import { allowedCheck } from './http-connections.ts';
import { officialClients, useRetryCount } from './official-clients.ts';
import { expectCleanStop } from './server-health.ts';

/** Time between the calls of a client. Clients of every kind use each gap. */
const GAPS_MS = IS_LONG
  ? [9_000, 9_500, 9_900, 10_000, 10_100, 10_500, 11_000, 12_000, 13_000]
  : [9_500, 10_000];
const CALLS = IS_LONG ? 10 : 2;
/** Clients of each kind and gap. */
const CLIENTS = IS_LONG ? 4 : 2;
const KINDS = officialClients('').map(({ name }) => name);

const own = useDataDirectory([
  ...['--counters', '1024', '--acceptors', '2', '--workers', '1'],
  ...['--host', '0.0.0.0'],
]);

const retries = useRetryCount();

const body = JSON.stringify(allowedCheck('raw'));
const headers = { Authorization: `Bearer ${ROOT_KEY}`, 'Content-Type': 'application/json' };

async function byFetch(url: string): Promise<void> {
  const request = { method: 'POST', headers, body };
  const response = await fetch(`${url}/v1/ratelimits.limit`, request);
  if (response.status !== 200) throw new Error(`${response.status}`);
  await response.text();
}

/**
 * This agent may keep a connection for 30 s, where `fetch` keeps it for a few. It obeys the header
 * Keep-Alive. Without that header it loses one request in fifty at such gaps.
 */
function byAgent(url: string): () => Promise<void> {
  const agent = new Agent({ keepAlive: true, maxSockets: 1, timeout: 30_000 });
  return () => {
    return new Promise((resolve, reject) => {
      const options = { agent, method: 'POST', headers };
      const request = httpRequest(`${url}/v1/ratelimits.limit`, options, (response) => {
        response.resume();
        response.on('end', resolve);
      });
      request.on('error', reject);
      request.end(body);
    });
  };
}

test('no call fails whose gap is close to the idle timeout of connections', async () => {
  const server = await own.start();
  const errors: string[] = [];
  let calls = 0;
  const client = async (name: string, gapMs: number, call: () => Promise<void>) => {
    for (let i = 0; i < CALLS; i++) {
      if (i > 0) await sleep(gapMs);
      calls++;
      await call().catch((error: Error) => errors.push(`${name} at ${gapMs} ms: ${error.message}`));
    }
  };
  await Promise.all(
    GAPS_MS.flatMap((gapMs, gap) =>
      Array.from({ length: CLIENTS }, (_, i) => {
        // Each kind has its own address, so it shares no pooled connection with another.
        const at = (kind: number) => `http://127.${1 + gap}.${i}.${1 + kind}:${server.port}`;
        return [
          ...KINDS.map((name, kind) => {
            const { check } = officialClients(at(kind))[kind];
            return client(name, gapMs, () => check(`${name} ${gapMs} ${i}`));
          }),
          client('fetch', gapMs, () => byFetch(at(KINDS.length))),
          client('node:http', gapMs, byAgent(at(KINDS.length + 1))),
        ];
      }).flat(),
    ),
  );
  const gaps = `${GAPS_MS[0] / 1_000} to ${GAPS_MS[GAPS_MS.length - 1] / 1_000} s apart`;
  const measured = `${calls} calls, ${retries()} retries of v1 clients, ${errors.length} errors`;
  recordMeasurement('P3', 'calls around the idle timeout', gaps, measured);
  expect(errors).toEqual([]);
  await expectCleanStop(server);
}, 300_000);
