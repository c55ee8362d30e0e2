import { expect, test } from 'vitest';
import { done } from '../support/api.ts';
import { metrics, requestBytes } from '../support/http.ts';
import { converse, random, type Tally, tallyOf } from '../support/load.ts';
import { scaled } from '../support/scale.ts';
import { MODES, removeDirectory, startServer, temporaryDirectory } from '../support/server.ts';

const CONNECTIONS = 64;
/** On each connection; whole packets of them. */
const CHECKS = 16 * scaled(1_024);
/** uWebSockets.js takes one request at a time where answers come later. */
const DEPTH = { 'in-place': 16, worker: 1 } as const;
const HOT = 6;
const COLD = 3_000;
const DURATION_MS = 2_000;
const COSTS = [1, 1, 1, 1, 2, 3, 7, 0];

const limitOf = (id: number) => (id < HOT ? 9_000 + id : 15 + (id % 11));

const requests = Array.from({ length: HOT + COLD }, (_, id) =>
  COSTS.map((cost) => {
    const namespace = `exact_${id % 3}`;
    const body = {
      namespace,
      identifier: `id_${id}`,
      limit: limitOf(id),
      duration: DURATION_MS,
      cost,
    };
    return requestBytes({ body: JSON.stringify(body) });
  }),
);

interface Sent {
  id: number;
  cost: number;
}

test.each(MODES)(
  `decided %s, two acceptors, ${CONNECTIONS * CHECKS} checks: no window admits more than its limit, none less, and the metrics are the sums of the answers`,
  async (mode) => {
    const dataDir = temporaryDirectory();
    const server = await startServer(dataDir, {
      args: ['--acceptors', '2', '--workers', '2', '--counters', '65536', '--decide', mode],
    });
    // A look into a namespace that is not there yet is counted with those of all others; what an
    // override has made is known to every acceptor.
    for (const i of [0, 1, 2]) {
      const said = { identifier: 'nobody', limit: 1, duration: 1_000 };
      await done(server.port, 'ratelimits.setOverride', { namespaceName: `exact_${i}`, ...said });
    }
    const tallies = new Map<string, Tally>();
    /** By namespace: decisions and tokens, admitted and refused. */
    const sums = Array.from({ length: 3 }, () => ({ admitted: [0, 0], refused: [0, 0] }));
    const counts = await Promise.all(
      Array.from({ length: CONNECTIONS }, (_, i) => {
        const next = random(i + 1);
        return converse<Sent>({
          port: server.port,
          checks: CHECKS,
          depth: DEPTH[mode],
          next: () => {
            const id = next(3) === 0 ? HOT + next(COLD) : next(HOT);
            return { id, cost: next(COSTS.length) };
          },
          bytes: ({ id, cost }) => requests[id][cost],
          record: ({ id, cost }, admitted, reset) => {
            const tally = tallyOf(tallies, `${id}/${reset}`);
            if (admitted) tally.admitted += COSTS[cost];
            else tally.refused = Math.min(tally.refused, COSTS[cost]);
            const sum = sums[id % 3][admitted ? 'admitted' : 'refused'];
            sum[0]++;
            sum[1] += COSTS[cost];
          },
        });
      }),
    );
    const measured = await metrics(server.adminUrl);
    expect(await server.stop()).toEqual({ code: 0, signal: null });
    removeDirectory(dataDir);

    const wrong: string[] = [];
    let tokens = 0;
    let exhausted = 0;
    for (const [key, { admitted, refused }] of tallies) {
      const limit = limitOf(Number(key.split('/')[0]));
      if (admitted > limit) wrong.push(`${key}: ${admitted} of ${limit} admitted`);
      // A refusal of c was right if the window had not c tokens left, and so has not at its end.
      if (admitted + refused <= limit) wrong.push(`${key}: ${refused} refused at ${admitted}`);
      tokens += admitted;
      if (refused < Number.POSITIVE_INFINITY) exhausted++;
    }
    expect(wrong).toEqual([]);
    const total = counts.reduce((sum, count) => sum + count, 0);
    expect(total).toBe(CONNECTIONS * CHECKS);
    expect(exhausted).toBeGreaterThan(HOT);
    expect(server.stderr()).not.toContain('raise WEIR_COUNTERS');

    for (const [i, sum] of sums.entries()) {
      for (const outcome of ['admitted', 'refused'] as const) {
        const labels = `{namespace="exact_${i}",outcome="${outcome}"}`;
        expect([
          measured.get(`weir_decisions_total${labels}`),
          measured.get(`weir_tokens_total${labels}`),
        ]).toEqual(sum[outcome]);
      }
    }
    expect(measured.get('weir_check_duration_seconds_count')).toBe(total);
    expect(measured.get('weir_live_evictions_total')).toBe(0);
    const inPlace = measured.get('weir_ring_full_total')!;
    const takenBack = measured.get('weir_ring_taken_back_total')!;
    const handedOver = measured.get('weir_ring_checks_total')!;
    expect(handedOver + inPlace).toBe(mode === 'worker' ? total : 0);
    expect(measured.get('weir_worker_decisions_total')! + takenBack).toBe(handedOver);
    console.info(
      `${total} checks, ${tokens} tokens admitted, ${tallies.size} windows, ${exhausted} exhausted,` +
        ` ${handedOver} handed over, ${takenBack} taken back`,
    );
  },
  180_000,
);
