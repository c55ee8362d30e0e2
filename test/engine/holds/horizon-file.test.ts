import { mkdirSync, readdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import {
  horizonPath,
  LEASE_HORIZON_FILE,
  readHorizon,
  removeHorizon,
  writeHorizon,
} from '../../../src/engine/holds/horizon-file.ts';
import { START_MS } from '../../support/limiter-model.ts';
import { removeDirectory, temporaryDirectory } from '../../support/server.ts';

const UNFINISHED = `${LEASE_HORIZON_FILE}.new`;
let directory: string;
beforeEach(() => {
  directory = temporaryDirectory();
});
afterEach(() => removeDirectory(directory));

test('a horizon is read as it was written, until it is removed', () => {
  expect(readHorizon(directory)).toBe(0);
  for (const ms of [START_MS, START_MS + 1, 8_640_000_000_000_000]) {
    writeHorizon(directory, ms);
    expect(readHorizon(directory)).toBe(ms);
  }
  expect(readdirSync(directory)).toEqual([LEASE_HORIZON_FILE]);
  removeHorizon(directory);
  removeHorizon(directory);
  expect([readHorizon(directory), readdirSync(directory)]).toEqual([0, []]);
});

test('no damage of the file shortens the wait: all other content is an infinite horizon', () => {
  writeHorizon(directory, START_MS);
  const content = readFileSync(horizonPath(directory));
  const damaged = [
    Buffer.concat([content, Buffer.from('\n')]),
    Buffer.concat([content, content]),
    Buffer.from(`NaN ${'0'.repeat(8)}\n`),
    ...Array.from(content, (_, length) => content.subarray(0, length)),
  ];
  for (let bit = 0; bit < 8 * content.length; bit++) {
    const flipped = Buffer.from(content);
    flipped[bit >> 3] ^= 1 << (bit & 7);
    damaged.push(flipped);
  }
  for (const bytes of damaged) {
    writeFileSync(horizonPath(directory), bytes);
    expect([bytes.toString('latin1'), readHorizon(directory)]).toEqual([
      bytes.toString('latin1'),
      Number.POSITIVE_INFINITY,
    ]);
  }
});

test('what a crash has left of an unfinished write is replaced, and does not count', () => {
  writeHorizon(directory, START_MS);
  writeFileSync(join(directory, UNFINISHED), String(START_MS + 5_000));
  expect(readHorizon(directory)).toBe(START_MS);
  writeHorizon(directory, START_MS + 1_000);
  expect(readHorizon(directory)).toBe(START_MS + 1_000);
  expect(readdirSync(directory)).toEqual([LEASE_HORIZON_FILE]);
});

test('a failed write throws, and leaves the horizon as it was', () => {
  writeHorizon(directory, START_MS);
  mkdirSync(join(directory, UNFINISHED));
  expect(() => writeHorizon(directory, START_MS + 1_000)).toThrow('EISDIR');
  expect(readHorizon(directory)).toBe(START_MS);
});

test('no symbolic link is followed', () => {
  const victim = join(directory, 'victim');
  writeFileSync(victim, 'kept');
  symlinkSync(victim, join(directory, UNFINISHED));
  writeHorizon(directory, START_MS);
  expect(readFileSync(victim, 'utf8')).toBe('kept');
  expect(readHorizon(directory)).toBe(START_MS);
  removeHorizon(directory);
  symlinkSync(victim, horizonPath(directory));
  expect(() => readHorizon(directory)).toThrow('ELOOP');
});
