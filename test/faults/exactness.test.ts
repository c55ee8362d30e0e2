/** No fault but load: every decision is replayed, and no window admits more or less than it may. */

import { describe, expect, test } from 'vitest';
import { useDataDirectory } from '../support/data-directory.ts';
import { IS_LONG, newSeed, recordMeasurement, trialCount } from '../support/guarantees.ts';
import { readMetrics } from '../support/http.ts';
import { Ledger } from '../support/ledger.ts';
import { callOperationOk } from '../support/operations.ts';
import { DECIDE_MODES } from '../support/server.ts';
import { expectCleanStop } from '../support/server-health.ts';
import { prepareCheck, Traffic } from '../support/traffic.ts';

const CONNECTIONS = 64;
/** uWebSockets.js takes one request at a time where answers come later. */
const DEPTH = { 'in-place': 16, worker: 1 } as const;
/** Whole packets on all connections. */
const CHECKS = {
  'in-place': 16 * 64 * trialCount(98, 9_900),
  worker: 64 * trialCount(1_000, 16_000),
} as const;
const HOT = 6;
const COLD = 3_000;
const DURATION_MS = 2_000;
const COSTS = [1, 1, 1, 1, 2, 3, 7, 0];

/** So little that the hot ones are exhausted however slow the machine is. */
const HOT_LIMIT = IS_LONG ? 9_000 : 300;
const limitOf = (id: number) => (id < HOT ? HOT_LIMIT + id : 15 + (id % 11));
const namespaceOf = (id: number) => id % 3;

const preparedChecks = Array.from({ length: HOT + COLD }, (_, id) =>
  COSTS.map((cost) => {
    const body = { namespace: `exact_${namespaceOf(id)}`, identifier: `id_${id}`, cost };
    return prepareCheck(id, { ...body, limit: limitOf(id), duration: DURATION_MS });
  }),
);

const own = useDataDirectory([]);

describe.each(DECIDE_MODES)('decided %s, by two acceptors:', (mode) => {
  test(`in ${CHECKS[mode]} checks no window admits more than its limit, none less, and the metrics are the sums of the answers`, async () => {
    const threads = ['--acceptors', '2', '--workers', '2'];
    const server = await own.start({ args: [...threads, '--counters', '65536', '--decide', mode] });
    // A look into a namespace that is not there yet is counted with those of all others; what an
    // override has made is known to every acceptor.
    for (const i of [0, 1, 2]) {
      const said = { identifier: 'nobody', limit: 1, duration: 1_000 };
      await callOperationOk(server.port, 'ratelimits.setOverride', {
        namespaceName: `exact_${i}`,
        ...said,
      });
    }
    const seed = newSeed();
    const ledger = new Ledger(limitOf);
    /** By namespace: decisions and tokens, allowed and denied. */
    const sums = Array.from({ length: 3 }, () => ({ allowed: [0, 0], denied: [0, 0] }));
    const traffic = new Traffic({
      port: server.port,
      connections: CONNECTIONS,
      checksPerPacket: DEPTH[mode],
      seed,
      checks: CHECKS[mode],
      ledger,
      nextCheck: (below) => {
        const id = below(3) === 0 ? HOT + below(COLD) : below(HOT);
        return preparedChecks[id][below(COSTS.length)];
      },
      onDecision: ({ id, cost }, isAllowed) => {
        const sum = sums[namespaceOf(id)][isAllowed ? 'allowed' : 'denied'];
        sum[0]++;
        sum[1] += cost;
      },
    });
    await traffic.ended;
    const measured = await readMetrics(server.adminUrl);
    await expectCleanStop(server);

    const total = CHECKS[mode];
    const verdict = ledger.report();
    const tried = `${verdict.decisions} decisions ${mode}, ${verdict.windows} windows`;
    recordMeasurement(
      'P1',
      'load',
      tried,
      `most beyond a limit: ${verdict.maxExcess}; seed ${seed}`,
    );
    recordMeasurement('P2', 'load', tried, `${verdict.falseDenials} false refusals`);
    recordMeasurement(
      'P3',
      'load',
      `${traffic.sent} sent ${mode}`,
      `${traffic.unanswered} unanswered`,
    );
    expect([traffic.sent, traffic.responses, traffic.connectionErrors]).toEqual([total, total, []]);
    expect(verdict.decisions).toBe(total);
    expect(verdict).toMatchObject({ maxExcess: 0, falseDenials: 0, violations: [] });
    expect(server.stderr()).not.toContain('raise WEIR_COUNTERS');

    for (const [i, sum] of sums.entries()) {
      for (const outcome of ['allowed', 'denied'] as const) {
        const labels = `{namespace="exact_${i}",outcome="${outcome}"}`;
        expect([
          measured.get(`weir_decisions_total${labels}`),
          measured.get(`weir_tokens_total${labels}`),
        ]).toEqual(sum[outcome]);
      }
    }
    expect(measured.get('weir_check_duration_seconds_count')).toBe(total);
    expect(measured.get('weir_live_evictions_total')).toBe(0);
    const inPlace = measured.get('weir_queue_full_total')!;
    const takenBack = measured.get('weir_queue_withdrawn_total')!;
    const handedOver = measured.get('weir_queue_checks_total')!;
    expect(handedOver + inPlace).toBe(mode === 'worker' ? total : 0);
    expect(measured.get('weir_worker_decisions_total')! + takenBack).toBe(handedOver);
  }, 1_200_000);
});
