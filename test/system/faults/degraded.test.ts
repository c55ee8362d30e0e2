/** Real faults make a server degraded: in /readyz, `weir health`, the dashboard and the metrics. */

import { execFileSync } from 'node:child_process';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import type { PastFault } from '../../../src/observe/faults.ts';
import { DashboardClient } from '../../support/dashboard.ts';
import { useDataDirectory } from '../../support/data-directory.ts';
import { exchange, LONGEST_WINDOW_MS, requestBytes, sendCheck } from '../../support/http.ts';
import { type ServerProcess, waitUntil } from '../../support/server.ts';
import { SMALL } from '../../support/test-server.ts';
import { callWeir } from '../../support/weir-command.ts';
import { workerFaults } from '../../support/worker-faults.ts';

const own = useDataDirectory(SMALL);

const check = (identifier: string) => ({ identifier, limit: 10, duration: LONGEST_WINDOW_MS });

interface Answer {
  http: number;
  status: string;
  reasons: string[];
  pastFaults: PastFault[];
}

async function readyz({ adminUrl }: ServerProcess): Promise<Answer> {
  const response = await fetch(`${adminUrl}/readyz`);
  const body = (await response.json()) as Omit<Answer, 'http'>;
  const { status, reasons = [], pastFaults = [] } = body;
  return { http: response.status, status, reasons, pastFaults };
}

/** Without the figures, which change. */
const withoutFigures = (text: string) => text.replaceAll(/\d+/g, 'N');

/** Expects that all surfaces show the same reasons at one time. */
async function expectReasons(
  server: ServerProcess & { metric: (name: string) => Promise<number> },
  reasons: readonly string[],
): Promise<void> {
  const client = await DashboardClient.signIn(server.adminUrl);
  const events = await client.openEvents();
  for (const reason of reasons) {
    expect([reason, await server.metric(`weir_degraded{reason="${reason}"}`)]).toEqual([reason, 1]);
  }
  const { http, status, reasons: texts } = await readyz(server);
  expect([http, status]).toEqual([200, 'degraded']);
  const { health } = (await events.next('snapshot')) as { health: { reasons: string[] } };
  events.close();
  expect(health.reasons.map(withoutFigures)).toEqual(texts.map(withoutFigures));
  const { code, stdout } = await callWeir('', ['health', '--url', server.adminUrl], {
    cwd: own.dataDir,
  });
  const lines = stdout.trimEnd().split('\n').map(withoutFigures);
  // After them come faults that have ended.
  const shown = lines.slice(0, 1 + texts.length);
  expect([code, shown]).toEqual([0, ['degraded', ...texts.map(withoutFigures)]]);
}

/** Expects that all surfaces still show faults that have ended since a time. */
async function expectPast(
  server: ServerProcess,
  reasons: readonly string[],
  sinceMs: number,
): Promise<void> {
  const { status, pastFaults } = await readyz(server);
  // On a busy machine a shard worker may have been late at the start.
  const since = pastFaults.filter(({ start }) => start > sinceMs - 1_000);
  expect([status, since.map(({ reason }) => reason).toSorted()]).toEqual([
    'ready',
    reasons.toSorted(),
  ]);
  for (const { start, end } of since) {
    expect(end).toBeGreaterThan(start);
    expect(end).toBeLessThanOrEqual(Date.now());
  }
  const client = await DashboardClient.signIn(server.adminUrl);
  const events = await client.openEvents();
  const { health } = (await events.next('snapshot')) as { health: Pick<Answer, 'pastFaults'> };
  events.close();
  expect(health.pastFaults).toEqual(pastFaults);
  const { code, stdout } = await callWeir('', ['health', '--url', server.adminUrl], {
    cwd: own.dataDir,
  });
  const lines = pastFaults.map(({ cause, start, end }) => {
    const [from, to] = [start, end].map((ms) => new Date(ms).toISOString().replace(/\.\d+/, ''));
    return `earlier: ${cause}, ${from} to ${to}`;
  });
  expect([code, stdout.trimEnd().split('\n')]).toEqual([0, ['ready', ...lines]]);
}

describe('a server is degraded, and decides checks,', () => {
  test('while checkpoints, events, the store and the analytics cannot be written', async () => {
    const args = [...SMALL, '--checkpoint-ms', '100', '--events', 'all'];
    const server = await own.start({ args });
    await sendCheck(server.port, check('before'));
    await waitUntil('it is ready', async () => (await readyz(server)).status === 'ready');
    const limitFiles = (bytes: string) => {
      execFileSync('prlimit', ['--pid', String(server.child.pid), `--fsize=${bytes}`]);
    };
    const sinceMs = Date.now();
    limitFiles('1:');
    const files = {
      store: join(own.dataDir, 'store.db'),
      checkpoints: own.dataDir,
      analytics: join(own.dataDir, 'analytics.db'),
      events: join(own.dataDir, 'events.jsonl'),
    };
    let sent = 0;
    await waitUntil('each of them has failed', async () => {
      expect((await sendCheck(server.port, check(`user_${sent++}`))).success).toBe(true);
      const override = { namespaceName: 'default', identifier: 'abc', limit: 5, duration: 60_000 };
      await server.call('ratelimits.setOverride', override);
      const { reasons } = await readyz(server);
      return Object.values(files).every((path) => {
        const cause = `disk: ${path} cannot be written (`;
        return reasons.some(
          (text) => text.startsWith(cause) && /It began [1-9]\d* s ago\./.test(text),
        );
      });
    });
    await expectReasons(server, Object.keys(files));
    limitFiles('unlimited:');
    await waitUntil('it is ready again', async () => {
      await sendCheck(server.port, check(`user_${sent++}`));
      return (await readyz(server)).status === 'ready';
    });
    expect(await server.metric('weir_degraded{reason="checkpoints"}')).toBe(0);
    await expectPast(server, Object.keys(files), sinceMs);
  });

  test('after a shard worker has died, with the number of deaths', async () => {
    const server = await own.start(workerFaults(1_000, ['throw']));
    await waitUntil('two workers were replaced', async () => {
      expect((await sendCheck(server.port, check('a'))).limit).toBe(10);
      return (await server.metric('weir_workers_replaced_total')) >= 2;
    });
    const { reasons } = await readyz(server);
    expect(reasons.join('\n')).toMatch(
      /^shard workers replaced in the last 10 min: [2-9], the last one \d s ago\. Checks continue\./m,
    );
    expect(await server.metric('weir_degraded{reason="workers_replaced"}')).toBe(1);
  });

  test('while its table is full to 90 %', async () => {
    const server = await own.start();
    const fill = async (count: number) => {
      for (let first = 0; first < count; first += 60) {
        const requests = Array.from({ length: 60 }, (_, i) => {
          return requestBytes({ body: JSON.stringify(check(`user_${first + i}`)) });
        });
        await exchange(server.port, [Buffer.concat(requests)], requests.length);
      }
    };
    await fill(900);
    await waitUntil('a sweep has counted them', async () => {
      return (await server.metric('weir_counters_live')) === 900;
    });
    expect((await readyz(server)).status).toBe('ready');
    await fill(960);
    await waitUntil('it is degraded', async () => (await readyz(server)).status === 'degraded');
    const { reasons } = await readyz(server);
    expect(reasons).toEqual([
      expect.stringMatching(/^960 live counters, 93 % of the 1024 of WEIR_COUNTERS\. It began /),
    ]);
    await expectReasons(server, ['table_nearly_full']);
    await waitUntil('the log says so', () => server.stderr().includes('counters are nearly full'));
  });
});
