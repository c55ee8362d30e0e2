/**
 * Overrides, keys and namespaces of servers with one real Redis: how soon a change is active on all
 * of them under load, and what `kill -9` of a server in the middle of changes leaves.
 */

import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { newSeed, recordMeasurement, trialCount } from '../../support/guarantees.ts';
import { LONGEST_WINDOW_MS, sendCheck, sendRequest } from '../../support/http.ts';
import { callOperation, callOperationOk, type Fields } from '../../support/operations.ts';
import { isRedisMissing, type RedisServer, startRedis } from '../../support/programs/redis.ts';
import { seededRandom } from '../../support/seeded-random.ts';
import { waitUntil } from '../../support/server.ts';
import { closeMachines, type Machine, startMachines } from './cluster-machines.ts';
import { prepareCheck, Traffic } from './traffic.ts';

const SERVERS = 3;
/** The default of WEIR_SYNC_MS. */
const SYNC_MS = 100;
/** The namespaces of the changes fit in one page of their list. */
const CHANGES = trialCount(2, 90);
const KILLS = trialCount(2, 60);
/** Overrides that one change sets, and clients of each server, which have overrides of their own. */
const GROUP = 5;
const CLIENTS = 2;
const NAMESPACE = 'kills';
const NO_COST = { identifier: 'a', limit: 1, duration: 1_000, cost: 0 };

describe.skipIf(isRedisMissing)('servers with one registry', () => {
  let redis: RedisServer;
  let servers: Machine[];
  beforeAll(async () => {
    redis = await startRedis({ isDurable: true });
    servers = await startMachines(redis, SERVERS, { network: {} });
  });
  afterAll(async () => {
    await closeMachines(servers);
    await redis.close();
  });

  test('have each change active on all of them', { timeout: 300_000 }, async () => {
    const seed = newSeed();
    const below = seededRandom(seed);
    const checks = [0, 1, 2].map((id) => {
      const body = { identifier: `load_${id}`, limit: 1_000, duration: 60_000, cost: 1 };
      return prepareCheck(id, body);
    });
    const traffics = servers.map(({ port }, i) => {
      const nextCheck = (less: (n: number) => number) => checks[less(checks.length)];
      return new Traffic({ port, connections: 2, checksPerPacket: 1, seed: seed + i, nextCheck });
    });
    const delays = new Map<string, number[]>();
    const status = async (port: number, key: string) => {
      const headers = { Authorization: `Bearer ${key}` };
      return (await sendRequest(port, { headers, body: JSON.stringify(NO_COST) })).status;
    };
    /** Changes made on one server, in turn, and whether a server shows the last one. */
    const changesOf = ({ port }: Machine, n: number) => {
      const override = { identifier: `user_${n}`, limit: 5_000 + n, duration: LONGEST_WINDOW_MS };
      const set = (namespaceName: string) => {
        return callOperationOk(port, 'ratelimits.setOverride', { namespaceName, ...override });
      };
      let created: Fields = {};
      return {
        override: {
          make: () => set('default'),
          isActive: async (at: number) => {
            const { limit } = await sendCheck(at, { ...NO_COST, identifier: `user_${n}` });
            return limit === override.limit;
          },
        },
        // The change creates the namespace.
        namespace: {
          make: () => set(`namespace_${n}`),
          isActive: async (at: number) => {
            const page = await callOperationOk(at, 'ratelimits.listNamespaces', {});
            return (page.namespaces as Fields[]).some(({ name }) => name === `namespace_${n}`);
          },
        },
        key: {
          make: async () => {
            const fields = { name: `key ${n}`, permissions: ['ratelimit.*.limit'] };
            created = await callOperationOk(port, 'keys.create', fields);
          },
          isActive: async (at: number) => (await status(at, String(created.key))) === 200,
        },
        revocation: {
          make: () => callOperationOk(port, 'keys.revoke', { keyId: created.keyId }),
          isActive: async (at: number) => (await status(at, String(created.key))) === 401,
        },
      };
    };
    try {
      for (let n = 0; n < CHANGES; n++) {
        const changed = servers[below(SERVERS)];
        const others = servers.filter((server) => server !== changed);
        for (const [kind, { make, isActive }] of Object.entries(changesOf(changed, n))) {
          await make();
          // From the acknowledgement on.
          const startMs = performance.now();
          expect(await isActive(changed.port)).toBe(true);
          const wait = ({ port }: Machine) => {
            return waitUntil(`${port} has the ${kind}`, () => isActive(port));
          };
          await Promise.all(others.map(wait));
          delays.set(kind, [...(delays.get(kind) ?? []), performance.now() - startMs]);
        }
      }
    } finally {
      await Promise.all(traffics.map((traffic) => traffic.stop()));
    }
    const load = traffics.reduce((sum, { responses }) => sum + responses, 0);
    for (const [kind, times] of delays) {
      const sorted = times.toSorted((a, b) => a - b);
      const at = (share: number) => {
        return `${sorted[Math.ceil(share * sorted.length) - 1].toFixed(0)} ms`;
      };
      const fault = `${kind}: active on the other ${SERVERS - 1} servers, WEIR_SYNC_MS=${SYNC_MS}`;
      const trials = `${times.length} changes during ${load} checks (seed ${seed})`;
      const measured = `after p50 ${at(0.5)}, p99 ${at(0.99)}, at most ${at(1)}`;
      recordMeasurement('P4', fault, trials, measured);
    }
  });

  test('have each change whole or not at all, on all of them alike, after kill -9', {
    timeout: 900_000,
  }, async () => {
    const seed = newSeed();
    const below = seededRandom(seed);
    /** By group: the limit that was acknowledged last, and those that may have been set since. */
    const possible = new Map<string, (number | undefined)[]>();
    let limit = 1;
    let changes = 0;
    let unanswered = 0;
    let made = 0;
    /** @returns whether it was acknowledged */
    const change = async ({ port }: Machine, group: string): Promise<boolean> => {
      const next = ++limit;
      possible.set(group, [...(possible.get(group) ?? [undefined]), next]);
      const overrides = Array.from({ length: GROUP }, (_, n) => ({
        ...{ namespaceName: NAMESPACE, identifier: `${group}_${n}` },
        ...{ limit: next, duration: LONGEST_WINDOW_MS },
      }));
      const { status } = await callOperation(port, 'ratelimits.importOverrides', { overrides });
      if (status !== 200) return false;
      possible.set(group, [next]);
      changes++;
      return true;
    };
    const limitsOf = async ({ port }: Machine): Promise<Map<string, number>> => {
      const limits = new Map<string, number>();
      const page = await callOperationOk(port, 'ratelimits.exportOverrides', {});
      expect(page.cursor).toBeUndefined();
      for (const { namespaceName, identifier, limit: one } of page.overrides as Fields[]) {
        if (namespaceName === NAMESPACE) limits.set(String(identifier), Number(one));
      }
      return limits;
    };
    for (let kill = 0; kill < KILLS; kill++) {
      let isOver = false;
      const victim = below(SERVERS);
      const clients = servers.flatMap((server, s) => {
        return Array.from({ length: CLIENTS }, async (_, client) => {
          while (!isOver) {
            // A server that is alive answers, if only that it may have made the change.
            const isAnswered = await change(server, `group_${s}_${client}`).then(
              () => true,
              () => false,
            );
            if (s !== victim) expect(isAnswered).toBe(true);
            if (!isAnswered) return;
          }
        });
      });
      const before = changes;
      await waitUntil('a change is acknowledged', () => changes > before);
      await sleep(below(60));
      await servers[victim].kill();
      await sleep(below(40));
      isOver = true;
      await Promise.all(clients);
      await servers[victim].start();
      let all: Map<string, number>[] = [];
      await waitUntil('all servers have the same overrides', async () => {
        all = await Promise.all(servers.map(limitsOf));
        const [first, ...others] = all.map((limits) => JSON.stringify([...limits].toSorted()));
        return others.every((other) => other === first);
      });
      for (const [group, limits] of possible) {
        const stored = Array.from({ length: GROUP }, (_, n) => all[0].get(`${group}_${n}`));
        expect([group, new Set(stored).size]).toEqual([group, 1]);
        expect([group, limits]).toEqual([group, expect.arrayContaining([stored[0]])]);
        unanswered += limits.length - 1;
        if (stored[0] !== limits[0]) made++;
        possible.set(group, [stored[0]]);
      }
      // Each stored override is active: a check on each server has the limit.
      const [[identifier, active]] = all[0];
      for (const { port } of servers) {
        const body = { ...NO_COST, namespace: NAMESPACE, identifier };
        await waitUntil(`${identifier} is active`, async () => {
          return (await sendCheck(port, body)).limit === active;
        });
      }
    }
    const trials = `${KILLS} kills, ${changes} changes of ${GROUP} overrides (seed ${seed})`;
    const measured = `0 lost, 0 in part; of ${unanswered} not acknowledged ${made} were made`;
    recordMeasurement('P4', 'kill -9 during changes of a shared registry', trials, measured);
  });
});
