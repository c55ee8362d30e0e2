import { mkdirSync, readdirSync, readFileSync, rmSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { openLog } from '../../src/core/log.ts';
import { EventFile } from '../../src/events/event-file.ts';
import { removeDirectory, temporaryDirectory } from '../support/server.ts';

const log = openLog('silent');

let directory: string;
let path: string;
beforeEach(() => {
  directory = temporaryDirectory();
  path = join(directory, 'events.jsonl');
});
afterEach(() => removeDirectory(directory));

const chunk = (...lines: string[]) => {
  return { lines: Buffer.from(lines.map((line) => `${line}\n`).join('')), count: lines.length };
};
const contents = () => {
  const names = readdirSync(directory).sort();
  return Object.fromEntries(
    names.map((name) => [name, readFileSync(join(directory, name), 'utf8')]),
  );
};

test('chunks are appended in their order, also after a restart', async () => {
  const order: string[] = [];
  const first = new EventFile({ path, maxBytes: 1_000, keptFiles: 1, log });
  first.write(chunk('1', '2'), () => order.push('a'));
  first.write(chunk('3'), () => order.push('b'));
  await first.close();
  const second = new EventFile({ path, maxBytes: 1_000, keptFiles: 1, log });
  second.write(chunk('4'), () => order.push('c'));
  await second.close();
  expect(contents()).toEqual({ 'events.jsonl': '1\n2\n3\n4\n' });
  expect([first.written, second.written, order]).toEqual([3, 1, ['a', 'b', 'c']]);
  expect(statSync(path).mode & 0o777).toBe(0o600);
});

test('a file is rotated before it exceeds its size, and the oldest one is removed', async () => {
  const file = new EventFile({ path, maxBytes: 4, keptFiles: 2, log });
  for (const text of ['a', 'b', 'c', 'd', 'e', 'f', 'g']) file.write(chunk(text), () => {});
  // Lines are never divided: a chunk that is larger than the file has a file of its own.
  file.write(chunk('long line'), () => {});
  await file.close();
  expect(contents()).toEqual({
    'events.jsonl': 'long line\n',
    'events.jsonl.1': 'g\n',
    'events.jsonl.2': 'e\nf\n',
  });
  const none = new EventFile({ path, maxBytes: 4, keptFiles: 0, log });
  for (const text of ['x', 'y', 'z']) none.write(chunk(text), () => {});
  await none.close();
  expect(contents()['events.jsonl']).toBe('z\n');
});

test('what cannot be written is dropped and counted, and writing goes on', async () => {
  mkdirSync(path);
  const file = new EventFile({ path, maxBytes: 1_000, keptFiles: 1, log });
  let done = 0;
  const write = (text: string) => {
    return new Promise<void>((resolve) => {
      file.write(chunk(text, text), () => {
        done++;
        resolve();
      });
    });
  };
  await write('lost');
  await write('lost');
  rmSync(path, { recursive: true });
  await write('kept');
  await file.close();
  expect([file.written, file.failed, done]).toEqual([2, 4, 3]);
  expect(contents()).toEqual({ 'events.jsonl': 'kept\nkept\n' });
});

test('a full disk breaks no later line', async () => {
  const file = new EventFile({ path: '/dev/full', maxBytes: 1_000, keptFiles: 0, log });
  await new Promise<void>((resolve) => file.write(chunk('x'), resolve));
  await file.close();
  expect([file.written, file.failed]).toEqual([0, 1]);
});
