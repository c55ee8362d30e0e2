import { expect, expectTypeOf, test } from 'vitest';
import { allocateControl, CONTROL, Control } from '../../src/shared-memory/control.ts';
import {
  ACCEPTOR_STAT,
  ACCEPTOR_STATS_BYTES,
  type AcceptorStats,
  NAMESPACE_STAT,
  NAMESPACE_STATS,
  OTHER_NAMESPACES_ROW,
  totalOf,
  WORKER_STAT,
  WORKER_STATS_BYTES,
  type WorkerStats,
} from '../../src/shared-memory/stats.ts';

test('header, clock, anchors and stats blocks lie on cache lines of their own', () => {
  expect(CONTROL).toEqual({
    ...{ acceptors: 0, workers: 1, rlsThreads: 2 },
    ...{ clockSequence: 16, analyticsHour: 17 },
  });
  const namespaceLines = Math.ceil(((OTHER_NAMESPACES_ROW + 1) * NAMESPACE_STATS.length) / 8);
  const acceptorBytes = 3_520_832 + namespaceLines * 64;
  expect([ACCEPTOR_STATS_BYTES, WORKER_STATS_BYTES]).toEqual([acceptorBytes, 17_152]);
  expect(allocateControl(3, 2).byteLength).toBe(4 * 64 + 3 * acceptorBytes + 2 * 17_152);
});

test('attaching checks that the size fits the header', () => {
  const damaged = (at: number) => {
    const buffer = allocateControl(2, 2);
    new Int32Array(buffer)[at]++;
    return buffer;
  };
  expect(new Control(allocateControl(2, 3))).toMatchObject({ acceptorCount: 2, workerCount: 3 });
  expect(() => new Control(damaged(CONTROL.acceptors))).toThrow('3 acceptors');
  expect(() => new Control(damaged(CONTROL.workers))).toThrow('3 workers');
  expect(() => new Control(allocateControl(2, 1)).acceptorStats(2)).toThrow('no acceptor 2');
  expect(() => new Control(allocateControl(2, 1)).workerStats(1)).toThrow('no worker 1');
});

test('stats blocks, and their sections, do not overlap', () => {
  const buffer = allocateControl(2, 2);
  const control = new Control(buffer);
  const [first, second] = control.allAcceptorStats();
  const [worker, idle] = control.allWorkerStats();
  first.heartbeat();
  first.addConnections(1);
  first.setKernelThreadId(4_194_304);
  first.setWaitingForDisk(true);
  for (const index of Object.values(ACCEPTOR_STAT)) first.increment(index);
  first.incrementErrors('NOT_FOUND');
  first.recordLatency(0.02);
  first.namespaceRow(OTHER_NAMESPACES_ROW)[NAMESPACE_STAT.unidentifiedChecks] = 7;
  for (const [i, index] of Object.values(WORKER_STAT).entries()) worker.add(index, i + 1);
  worker.heartbeat();
  worker.recordCallLatency(0.3);
  worker.countCallError('timeout');
  worker.addOpenedTokens(-3, 9);
  expect(first.heartbeats).toBeCloseTo(1 + 1 + 1 + 0.02);
  expect([first.connections, first.kernelThreadId]).toEqual([1, 4_194_304]);
  expect([first, second, worker].map(({ isWaitingForDisk }) => isWaitingForDisk)).toEqual([
    ...[true, false, false],
  ]);
  expect([second.kernelThreadId, worker.kernelThreadId, worker.threadId]).toEqual([0, 0, 0]);
  expect(Object.values(ACCEPTOR_STAT).map((index) => first.get(index))).toEqual(Array(50).fill(1));
  expect([first.errorCount('NOT_FOUND'), first.errorCount('FORBIDDEN')]).toEqual([1, 0]);
  expect([first.latencyCounts[3], first.latencySumMs]).toEqual([1, 0.02]);
  const works = Object.values(WORKER_STAT);
  const opened = WORKER_STAT.openedWindowTokens;
  expect(works.map((index) => worker.get(index))).toEqual(
    works.map((index, i) => i + 1 + (index === opened ? 9 : 0)),
  );
  expect([worker.callErrors('timeout'), worker.openedTokensOf(-3)]).toEqual([1, 9]);
  expect(worker.heartbeats).toBe(1);
  expect([worker.callLatencyCounts[9], worker.callLatencySumMs]).toEqual([1, 0.3]);
  expect([...idle.callLatencyCounts, idle.callLatencySumMs]).toEqual(Array(22).fill(0));
  expect([second.heartbeats, second.connections, second.namespaceRow(0)[0]]).toEqual([0, 0, 0]);
  expect(works.map((index) => idle.get(index))).toEqual(works.map(() => 0));
  expect([idle.callErrors('timeout'), idle.openedTokensOf(-3)]).toEqual([0, 0]);
  expect(control.anchor(1)).toEqual(new Float64Array(3));
});

test('a worker starts only the run that is expected', () => {
  const stats = new Control(allocateControl(1, 1)).workerStats(0);
  stats.expectRun(70);
  const state = () => [stats.threadId, stats.kernelThreadId];
  expect([stats.startRun(69, 3, 900), ...state()]).toEqual([false, 0, 0]);
  expect([stats.startRun(70, 4, 901), ...state()]).toEqual([true, 4, 901]);
  stats.expectRun(71);
  expect([stats.startRun(70, 4, 902), ...state()]).toEqual([false, 0, 901]);
  expect([stats.startRun(71, 5, 903), ...state()]).toEqual([true, 5, 903]);
});

test('the compiler rejects the index of a worker on an acceptor, and the other way round', () => {
  type Index<Stats extends AcceptorStats | WorkerStats> = Parameters<Stats['add' | 'get']>[0];
  expectTypeOf(ACCEPTOR_STAT.liveEvictions).toExtend<Index<AcceptorStats>>();
  expectTypeOf(WORKER_STAT.liveEvictions).toExtend<Index<WorkerStats>>();
  expectTypeOf(WORKER_STAT.liveEvictions).not.toExtend<Index<AcceptorStats>>();
  expectTypeOf(ACCEPTOR_STAT.liveEvictions).not.toExtend<Index<WorkerStats>>();
  expectTypeOf(NAMESPACE_STAT.allowed).not.toExtend<Index<AcceptorStats>>();
  const total = totalOf<Index<AcceptorStats>>;
  expectTypeOf<AcceptorStats[]>().toExtend<Parameters<typeof total>[0]>();
  expectTypeOf<WorkerStats[]>().not.toExtend<Parameters<typeof total>[0]>();
});
