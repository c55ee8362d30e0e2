/** `kill -9` during deletions of namespaces leaves each of them as it was, or deleted as a whole. */

import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { useDataDirectory } from '../../support/data-directory.ts';
import { newSeed, recordMeasurement, trialCount } from '../../support/guarantees.ts';
import { LONGEST_WINDOW_MS, waitForCheckpoint } from '../../support/http.ts';
import type { ApiClient, Fields } from '../../support/operations.ts';
import { seededRandom } from '../../support/seeded-random.ts';

const KILLS = trialCount(3, 60);
const NAMESPACES = 12;
const LIMIT = 5;

const own = useDataDirectory([
  ...['--counters', '1024', '--acceptors', '2', '--workers', '1', '--checkpoint-ms', '100'],
]);

const check = (namespace: string, cost: number) => {
  return { namespace, identifier: 'user', limit: LIMIT, duration: LONGEST_WINDOW_MS, cost };
};
const override = (namespaceName: string) => ({ namespaceName, identifier: 'vip' });
const figuresOf = async (server: ApiClient) => {
  const { namespaces } = await server.ok<{ namespaces: Fields[] }>('analytics.getNamespaces');
  return new Map(namespaces.map(({ name, allowed }) => [name, allowed]));
};

test('a namespace is deleted as a whole or not at all', { timeout: 600_000 }, async () => {
  const seed = newSeed();
  const below = seededRandom(seed);
  let [deleted, kept] = [0, 0];
  for (let kill = 0; kill < KILLS; kill++) {
    const names = Array.from({ length: NAMESPACES }, (_, i) => `${kill}_${i}`);
    const server = await own.start();
    for (const name of names) {
      const values = { limit: 9, duration: 60_000 };
      await server.ok('ratelimits.setOverride', { ...override(name), ...values });
      await server.check(check(name, LIMIT));
    }
    // Analytics are written each second, counters more often.
    await sleep(1_100);
    await waitForCheckpoint(server.adminUrl);
    const acknowledged = new Set<string>();
    const killed = sleep(below(150)).then(() => server.child.kill('SIGKILL'));
    for (const name of names) {
      const done = await server.call('ratelimits.deleteNamespace', { namespaceName: name }).then(
        ({ status }) => status === 200,
        () => false,
      );
      if (!done) break;
      acknowledged.add(name);
      // Another one of its name, of which every second check is counted.
      if (below(2) === 0) await server.check(check(name, LIMIT)).catch(() => {});
    }
    await killed;
    await server.exited;

    const again = await own.start();
    const present = new Set((await again.namespaces()).map(({ name }) => name));
    const figures = await figuresOf(again);
    for (const name of names) {
      const { status } = await again.call('ratelimits.getOverride', override(name));
      const left = (await again.check(check(name, 0))).remaining;
      const isOld = status === 200;
      if (isOld) {
        kept++;
        const state = [acknowledged.has(name), present.has(name), left, figures.get(name)];
        expect([name, ...state]).toEqual([name, false, true, 0, 1]);
      } else {
        deleted++;
        // At most the next namespace is there, with a check of its own.
        const used = LIMIT - left;
        expect([name, present.has(name) || used === 0, used % LIMIT]).toEqual([name, true, 0]);
        if (!present.has(name)) expect([name, figures.get(name)]).toEqual([name, undefined]);
      }
    }
    await again.stop();
  }
  const trials = `${KILLS} kills`;
  recordMeasurement('P4', 'kill -9 during deletions', trials, `${deleted} deleted, ${kept} kept`);
});
