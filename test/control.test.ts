import { expect, test } from 'vitest';
import { allocateControl, CONTROL, Control } from '../src/control.ts';
import { ACCEPTOR_LANE_BYTES, COUNT, TALLY, WORK, WORKER_LANE_BYTES } from '../src/lanes.ts';

test('the numbers of the control words are those of version 4', () => {
  expect(CONTROL).toEqual({ magic: 0, version: 1, acceptors: 2, workers: 3, clockSequence: 16 });
  expect([ACCEPTOR_LANE_BYTES, WORKER_LANE_BYTES]).toEqual([5_440, 256]);
  expect(allocateControl(3, 2).byteLength).toBe(4 * 64 + 3 * 5_440 + 2 * 256);
});

test('attaching checks magic number, version and shape', () => {
  const damaged = (at: number) => {
    const buffer = allocateControl(2, 2);
    new Int32Array(buffer)[at]++;
    return buffer;
  };
  expect(new Control(allocateControl(2, 3))).toMatchObject({ acceptors: 2, workers: 3 });
  expect(() => new Control(damaged(CONTROL.magic))).toThrow('magic');
  expect(() => new Control(damaged(CONTROL.version))).toThrow('version');
  expect(() => new Control(damaged(CONTROL.acceptors))).toThrow('3 acceptors');
  expect(() => new Control(damaged(CONTROL.workers))).toThrow('3 workers');
  expect(() => new Control(allocateControl(2, 1)).acceptorLane(2)).toThrow('no acceptor 2');
  expect(() => new Control(allocateControl(2, 1)).workerLane(1)).toThrow('no worker 1');
});

test('lanes, and what they hold, do not touch each other', () => {
  const buffer = allocateControl(2, 2);
  const control = new Control(buffer);
  const [first, second] = control.acceptorLanes();
  const [worker, idle] = control.workerLanes();
  first.beat();
  first.connection(1);
  for (const index of Object.values(COUNT)) first.count(index);
  first.error('NOT_FOUND');
  first.answered(0.02);
  first.row(100)[TALLY.unidentified] = 7;
  for (const [i, index] of Object.values(WORK).entries()) worker.add(index, i + 1);
  worker.beat();
  expect(first.signsOfLife).toBeCloseTo(1 + 1 + 1 + 0.02);
  expect(first.connections).toBe(1);
  expect(Object.values(COUNT).map((index) => first.counted(index))).toEqual(Array(18).fill(1));
  expect([first.errors('NOT_FOUND'), first.errors('FORBIDDEN')]).toEqual([1, 0]);
  expect([first.durations[3], first.durationSumMs]).toEqual([1, 0.02]);
  const works = Object.values(WORK);
  expect(works.map((index) => worker.counted(index))).toEqual(works.map((_, i) => i + 1));
  expect(worker.beats).toBe(1);
  expect([second.signsOfLife, second.connections, second.row(0)[0]]).toEqual([0, 0, 0]);
  expect(works.map((index) => idle.counted(index))).toEqual(works.map(() => 0));
  expect(control.anchor(1)).toEqual(new Float64Array(3));
});

test('a worker begins only the run that is expected', () => {
  const lane = new Control(allocateControl(1, 1)).workerLane(0);
  lane.expect(70);
  expect([lane.enter(69, 3), lane.thread]).toEqual([false, 0]);
  expect([lane.enter(70, 4), lane.thread]).toEqual([true, 4]);
  lane.expect(71);
  expect([lane.thread, lane.enter(70, 4)]).toEqual([0, false]);
});
