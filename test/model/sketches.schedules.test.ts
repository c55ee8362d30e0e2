/**
 * Explores schedules of a sketch with the real code: an acceptor that replaces the only busy entry
 * of a set, and the main thread that reads it.
 */

import { expect, test, vi } from 'vitest';
import { SKETCH_WORDS, SketchReader, SketchWriter } from '../../src/analytics/sketch.ts';
import { Bytes } from '../../src/core/bytes.ts';
import type { Identity } from '../../src/core/hash.ts';
import { IS_LONG } from '../support/guarantees.ts';
import { explore, type ThreadContext } from './explorer.ts';

vi.setConfig({ testTimeout: 600_000 });

/** By number: the identifiers of one set. More than it has entries take each other's. */
const IDENTIFIERS = Array.from({ length: 11 }, (_, number) => ({
  text: `i${number}`,
  identity: { h0: 0, h1: 100 + number, h2: 2 * number, h3: 1 } satisfies Identity,
}));
/** What the acceptor adds before both threads run: the entries of the set are used. */
const USED = [50, 50, 50, 50, 50, 50, 50, 3];

function add(writer: SketchWriter, number: number, amount: number): void {
  const text = new Bytes(64);
  const { text: identifier, identity } = IDENTIFIERS[number];
  const left = writer.add(identity, amount);
  if (left < 0) writer.take(identity, amount, left, text, 0, text.write(identifier, 0));
}

const write = ({ memories: [memory] }: ThreadContext): void => {
  const writer = new SketchWriter(memory, 0);
  add(writer, 8, 2);
  add(writer, 8, 1);
  add(writer, 9, 4);
};
/** The possible readings of the last entry, before and after each of these steps. */
const READINGS = ['i7: 0..3', 'i8: 3..5', 'i8: 3..6', 'i9: 6..10'];

test('a reading never mixes two identifiers, nor an identifier and the count of another', () => {
  const buffer = new SharedArrayBuffer(4 * SKETCH_WORDS);
  const memory = { words: new Int32Array(buffer), doubles: new Float64Array(buffer) };
  const writer = new SketchWriter(memory, 0);
  for (const [number, amount] of USED.entries()) add(writer, number, amount);
  const read = ({ memories: [shared] }: ThreadContext): string[] => {
    const { entries, floor, isComplete } = new SketchReader().read(shared, 0, 100);
    const shown = entries
      .filter(({ count }) => count < 50)
      .map(({ text, count, error }) => `${Buffer.from(text)}: ${error}..${count}`);
    return [...shown, `${entries.length + (shown.length === 0 ? 1 : 0)} ${isComplete}`, `${floor}`];
  };
  const seen = new Set<string>();
  explore(
    {
      memories: [{ buffer, waits: 'polled' }],
      threads: [{ run: write }, { run: read }],
      preemptions: IS_LONG ? 3 : 2,
    },
    ({ results }) => {
      const [shown, counts, floor] =
        (results[1] as string[]).length === 3
          ? (results[1] as string[])
          : [undefined, ...(results[1] as string[])];
      if (shown !== undefined) expect(READINGS).toContain(shown);
      expect(counts).toBe('8 true');
      // It never promises too little: the count of each identifier that may be missing.
      expect(Number(floor)).toBeGreaterThanOrEqual(3);
      seen.add(shown ?? 'replaced');
    },
  );
  expect([...seen].sort()).toEqual([...READINGS, 'replaced'].sort());
});
