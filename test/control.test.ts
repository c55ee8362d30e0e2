import { expect, test } from 'vitest';
import { allocateControl, CONTROL, COUNT, Control } from '../src/control.ts';

test('the numbers of the control words are those of version 1', () => {
  expect(CONTROL).toEqual({ magic: 0, version: 1, lanes: 2, clockSequence: 16 });
  expect(allocateControl(3).byteLength).toBe((4 + 3 * 2) * 64);
});

test('attaching checks magic number, version and shape', () => {
  const damaged = (at: number) => {
    const buffer = allocateControl(2);
    new Int32Array(buffer)[at]++;
    return buffer;
  };
  expect(new Control(allocateControl(2)).lanes).toBe(2);
  expect(() => new Control(damaged(CONTROL.magic))).toThrow('magic');
  expect(() => new Control(damaged(CONTROL.version))).toThrow('version');
  expect(() => new Control(damaged(CONTROL.lanes))).toThrow('3 lanes');
  expect(() => new Control(allocateControl(2)).lane(2)).toThrow('no lane 2');
});

test('lanes, and what they hold, do not touch each other', () => {
  const control = new Control(allocateControl(2));
  const [first, second] = [control.lane(0), control.lane(1)];
  first.beat();
  first.connection(1);
  for (const index of Object.values(COUNT)) first.count(index);
  expect(first.signsOfLife).toBe(1 + Object.keys(COUNT).length);
  expect(first.connections).toBe(1);
  expect(Object.values(COUNT).map((index) => first.counted(index))).toEqual([1, 1, 1, 1, 1, 1]);
  expect([second.signsOfLife, second.connections]).toEqual([0, 0]);
  expect(Object.values(COUNT).map((index) => second.counted(index))).toEqual([0, 0, 0, 0, 0, 0]);
  expect(control.anchor(1)).toEqual(new Float64Array(3));
});
