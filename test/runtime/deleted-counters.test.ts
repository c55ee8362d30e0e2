import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { CHECK_DEADLINE_MS, DELETED_NAMESPACES_MAX } from '../../src/core/constants.ts';
import { Hasher } from '../../src/core/hash.ts';
import { Registry } from '../../src/registry/registry.ts';
import { DeletedCounters } from '../../src/runtime/deleted-counters.ts';
import { removeDirectory, temporaryDirectory } from '../support/server.ts';
import { withStore } from '../support/store.ts';

const HASH_KEY = Buffer.from('0123456789abcdef');
const tagsOf = (...keys: string[]) => {
  const hasher = new Hasher(HASH_KEY);
  return new Set(keys.map((key) => hasher.namespace(key)[0]));
};

let dataDir: string;
beforeEach(() => {
  dataDir = temporaryDirectory();
  vi.useFakeTimers();
});
afterEach(() => {
  vi.useRealTimers();
  removeDirectory(dataDir);
});

/** The removals that an engine was asked for, and a function that ends the first one. */
function open() {
  const removals: ReadonlySet<number>[] = [];
  const ends: (() => void)[] = [];
  const engine = {
    removeNamespaces: (tags: ReadonlySet<number>) => {
      removals.push(tags);
      return new Promise<void>((resolve) => ends.push(resolve));
    },
  };
  const endFirst = async () => {
    ends.shift()!();
    await vi.advanceTimersByTimeAsync(CHECK_DEADLINE_MS);
  };
  const counters = withStore(dataDir, (store) => {
    return new DeletedCounters(engine, new Registry(store), HASH_KEY);
  });
  return { counters, removals, endFirst };
}

test('one removal runs at a time, and all deletions of this time are in the next one', async () => {
  const { counters, removals, endFirst } = open();
  counters.remove(['a']);
  await vi.advanceTimersByTimeAsync(CHECK_DEADLINE_MS - 1);
  counters.remove(['b']);
  expect(removals).toEqual([]);
  await vi.advanceTimersByTimeAsync(1);
  expect(removals).toEqual([tagsOf('a', 'b')]);
  for (const key of ['c', 'd', 'e', 'c']) {
    counters.remove([key]);
    await vi.advanceTimersByTimeAsync(2 * CHECK_DEADLINE_MS);
  }
  expect(removals.length).toBe(1);
  await endFirst();
  expect(removals.slice(1)).toEqual([tagsOf('c', 'd', 'e')]);
  await endFirst();
  expect(removals.length).toBe(2);
});

test('as many deletions wait as the registry remembers at most', async () => {
  const { counters, removals, endFirst } = open();
  counters.remove(['a']);
  await vi.advanceTimersByTimeAsync(CHECK_DEADLINE_MS);
  for (let i = 0; i < DELETED_NAMESPACES_MAX + 10; i++) counters.remove([`n${i}`]);
  await endFirst();
  expect(removals[1].size).toBe(DELETED_NAMESPACES_MAX);
});

test('nothing begins after the end', async () => {
  const { counters, removals, endFirst } = open();
  counters.remove(['a']);
  await vi.advanceTimersByTimeAsync(CHECK_DEADLINE_MS);
  counters.remove(['b']);
  counters.close();
  await endFirst();
  expect(removals.length).toBe(1);
});
