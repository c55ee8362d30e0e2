/**
 * Explores schedules of the use of overrides with the real code: an acceptor that counts checks,
 * and the main thread that reads them, writes entries, and gives the row of a deleted override to
 * the next one when the acceptor has activated the deletion.
 */

import { expect, test, vi } from 'vitest';
import { UsageRows } from '../../src/analytics/usage-rows.ts';
import { UsageCounts } from '../../src/shared-memory/usage-counts.ts';
import { explore, type ThreadContext } from './explorer.ts';

vi.setConfig({ testTimeout: 600_000 });

const ACTIVATED = 1;
const clock = { nowMs: () => 0, wallMs: (monotonicMs: number) => monotonicMs };
const countsOf = ({ memories: [{ doubles }] }: ThreadContext) => new UsageCounts(doubles);

/** Two checks with the deleted override, at 1 and 2 ms, and two with the next one. */
const count = (world: ThreadContext): void => {
  const counts = countsOf(world);
  for (const ms of [1, 2]) counts.record(0, ms);
  world.receive();
  world.send(ACTIVATED);
  world.receive();
  for (const ms of [3, 4]) counts.record(0, ms);
};

/** The use of the deleted override and of the next one, each read twice, and what was written. */
const read = (world: ThreadContext) => {
  const rows = new UsageRows([countsOf(world)], clock);
  const written: Record<string, number> = { old: 0, next: 0 };
  const use = (id: string) => {
    const { applied, lastAppliedMs } = rows.usageOf(id);
    return `${written[id] + applied} ${lastAppliedMs}`;
  };
  const write = () => {
    const entries = rows.newEntries(1, 1);
    for (const { id, applied } of entries) written[id] += applied;
    rows.addWritten(entries);
  };
  rows.rowOf('old');
  const seen = [use('old')];
  write();
  seen.push(use('old'));
  world.send();
  world.receive(ACTIVATED);
  rows.release(['old']);
  expect(rows.rowOf('next')).toBe(0);
  seen.push(use('next'));
  world.send();
  write();
  seen.push(use('next'));
  return seen;
};

test('the next override in a row never gets the checks or the time of the last one', () => {
  const buffer = new SharedArrayBuffer(64);
  const seen = new Set<string>();
  explore(
    {
      memories: [{ buffer, waits: 'polled' }],
      threads: [{ run: count }, { run: read }],
      preemptions: 3,
    },
    ({ results }) => {
      const [first, second, atFirst, later] = results[1] as string[];
      // A count comes with its time or with a later one, and with none if it was written before.
      expect(['0 0', '1 1', '1 2', '2 2']).toContain(first);
      expect(['0 0', '1 0', '1 1', '1 2', '2 0', '2 2']).toContain(second);
      expect(Number.parseInt(second, 10)).toBeGreaterThanOrEqual(Number.parseInt(first, 10));
      expect(atFirst).toBe('0 0');
      expect(['0 0', '1 0', '1 3', '1 4', '2 0', '2 4']).toContain(later);
      for (const one of [first, second, later]) seen.add(one);
    },
  );
  expect(seen.size).toBeGreaterThan(6);
});
