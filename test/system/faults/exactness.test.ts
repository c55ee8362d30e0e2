/**
 * Load without other faults: every decision is recorded, and every window allows exactly its limit.
 */

import { describe, expect, test } from 'vitest';
import { useDataDirectory } from '../../support/data-directory.ts';
import { IS_LONG, newSeed, trialCount } from '../../support/guarantees.ts';
import { readMetrics } from '../../support/http.ts';
import { callOperationOk } from '../../support/operations.ts';
import { DECIDE_MODES } from '../../support/server.ts';
import { Ledger } from './ledger.ts';
import { expectCleanStop } from './server-health.ts';
import {
  CHECKS_PER_PACKET,
  expectAnswered,
  prepareCheck,
  recordTraffic,
  Traffic,
} from './traffic.ts';

const CONNECTIONS = 64;
/** A multiple of the packets on all connections. */
const CHECKS = {
  'in-place': 16 * 64 * trialCount(40, 9_900),
  worker: 64 * trialCount(400, 16_000),
} as const;
const HOT = 6;
const COLD = 3_000;
const DURATION_MS = 2_000;
const COSTS = [1, 1, 1, 1, 2, 3, 7, 0];

/** Low enough that hot identifiers are exhausted on a slow machine too. */
const HOT_LIMIT = IS_LONG ? 9_000 : 100;
const limitOf = (id: number) => (id < HOT ? HOT_LIMIT + id : 15 + (id % 11));
const namespaceOf = (id: number) => id % 3;

const preparedChecks = Array.from({ length: HOT + COLD }, (_, id) =>
  COSTS.map((cost) => {
    const body = { namespace: `exact_${namespaceOf(id)}`, identifier: `id_${id}`, cost };
    return prepareCheck(id, { ...body, limit: limitOf(id), duration: DURATION_MS });
  }),
);

const own = useDataDirectory([]);

describe.each(DECIDE_MODES)('with decisions %s by two acceptors,', (mode) => {
  test(`in ${CHECKS[mode]} checks every window allows exactly its limit, and metrics match the responses`, async () => {
    const threads = ['--acceptors', '2', '--workers', '2'];
    const server = await own.start({ args: [...threads, '--counters', '65536', '--decide', mode] });
    // Checks in an unknown namespace are counted in a common metric. An override makes it known to
    // every acceptor.
    for (const i of [0, 1, 2]) {
      const terms = { identifier: 'unused', limit: 1, duration: 1_000 };
      const override = { namespaceName: `exact_${i}`, ...terms };
      await callOperationOk(server.port, 'ratelimits.setOverride', override);
    }
    const seed = newSeed();
    const ledger = new Ledger(limitOf);
    /** By namespace: allowed and denied decisions and tokens. */
    const sums = Array.from({ length: 3 }, () => ({ allowed: [0, 0], denied: [0, 0] }));
    const traffic = new Traffic({
      port: server.port,
      connections: CONNECTIONS,
      checksPerPacket: CHECKS_PER_PACKET[mode],
      seed,
      checks: CHECKS[mode],
      ledger,
      nextCheck: (below) => {
        const id = below(3) === 0 ? HOT + below(COLD) : below(HOT);
        return preparedChecks[id][below(COSTS.length)];
      },
      onDecision: ({ id, cost }, allowed) => {
        const sum = sums[namespaceOf(id)][allowed ? 'allowed' : 'denied'];
        sum[0]++;
        sum[1] += cost;
      },
    });
    await traffic.ended;
    const measured = await readMetrics(server.adminUrl);
    await expectCleanStop(server);

    const total = CHECKS[mode];
    recordTraffic('load', `${mode}, seed ${seed}`, traffic, ledger);
    expectAnswered(traffic);
    expect([traffic.sent, ledger.decisions, ledger.report().maxExcess]).toEqual([total, total, 0]);
    ledger.expectExact();
    expect(server.stderr()).not.toContain('raise WEIR_COUNTERS');

    for (const [i, sum] of sums.entries()) {
      for (const outcome of ['allowed', 'denied'] as const) {
        const labels = `{namespace="exact_${i}",outcome="${outcome}"}`;
        const metrics = ['decisions', 'tokens'].map((name) => {
          return measured.get(`weir_${name}_total${labels}`);
        });
        expect(metrics).toEqual(sum[outcome]);
      }
    }
    expect(measured.get('weir_check_duration_seconds_count')).toBe(total);
    expect(measured.get('weir_live_evictions_total')).toBe(0);
    const queueFull = measured.get('weir_queue_full_total')!;
    const withdrawn = measured.get('weir_queue_withdrawn_total')!;
    const queued = measured.get('weir_queue_checks_total')!;
    expect(queued + queueFull).toBe(mode === 'worker' ? total : 0);
    expect(measured.get('weir_worker_decisions_total')! + withdrawn).toBe(queued);
  }, 1_200_000);
});
