import fc from 'fast-check';
import { expect, test } from 'vitest';
import {
  SETS,
  SKETCH_WORDS,
  SketchReader,
  type SketchReading,
  SketchWriter,
  TEXT_BYTES,
  WAYS,
} from '../../src/analytics/sketch.ts';
import { Bytes } from '../../src/core/bytes.ts';
import { FastRandom } from '../../src/core/fast-random.ts';
import { type Identity, newIdentity } from '../../src/core/hash.ts';
import { newSeed, trialCount } from '../support/guarantees.ts';

const ENTRIES = SETS * WAYS;

class TestSketch {
  readonly buffer = new SharedArrayBuffer(4 * SKETCH_WORDS);
  readonly memory = { words: new Int32Array(this.buffer), doubles: new Float64Array(this.buffer) };
  readonly #writer: SketchWriter;
  readonly #text = new Bytes(4_096);
  /** Checks that have taken an entry. */
  taken = 0;

  constructor(seed = 1) {
    this.#writer = new SketchWriter(this.memory, 0, new FastRandom(seed));
  }

  add(identity: Identity, amount: number, identifier: string): void {
    const left = this.#writer.add(identity, amount);
    if (left >= 0) return;
    this.taken++;
    this.#writer.take(identity, amount, left, this.#text, 5, this.#text.write(identifier, 5));
  }

  read(max = ENTRIES): SketchReading {
    return new SketchReader().read(this.memory, 0, max);
  }
}

/** First bytes of hashes. Identifiers with the same one are told apart by the others. */
const TAGS = [0, 1, 2, 0x7f, 0x80, 0xfe, 0xff];
/** Identities of one set, unless another one is given. */
const identity = (number: number, set = 3): Identity => {
  const h1 = (TAGS[number % TAGS.length] << 24) | number;
  return { ...newIdentity(), h0: set, h1, h2: 2 * number, h3: 1 };
};
const textOf = (text: Uint8Array) => Buffer.from(text).toString();

test('counts are exact while the identifiers of a set have entries', () => {
  const sketch = new TestSketch();
  for (let round = 1; round <= 3; round++) {
    for (let number = 1; number <= WAYS; number++)
      sketch.add(identity(number), number, `u${number}`);
  }
  const { entries, floor, isComplete } = sketch.read();
  const shown = entries.map(({ text, count, error }) => [textOf(text), count, error]);
  expect(shown).toEqual(
    Array.from({ length: WAYS }, (_, i) => [`u${WAYS - i}`, 3 * (WAYS - i), 0]),
  );
  // The other sets have free entries; in this one an identifier may have the smallest count.
  expect({ floor, isComplete }).toEqual({ floor: 3, isComplete: true });
});

test('a reading lists the largest proven counts, and its floor covers the others', () => {
  const sketch = new TestSketch();
  for (let number = 1; number <= 5; number++)
    sketch.add(identity(number), 10 * number, `${number}`);
  const { entries, floor } = sketch.read(2);
  expect(entries.map(({ text }) => textOf(text))).toEqual(['5', '4']);
  expect(floor).toBe(30);
});

test('an identifier is read as it was written, and cut off after its first bytes', () => {
  const sketch = new TestSketch();
  const long = 'é'.repeat(300);
  sketch.add(identity(1), 3, '');
  sketch.add(identity(2), 2, 'x'.repeat(TEXT_BYTES));
  sketch.add(identity(3), 1, long);
  const [empty, whole, cut] = sketch.read().entries;
  expect([textOf(empty.text), empty.isCutOff]).toEqual(['', false]);
  expect([textOf(whole.text), whole.isCutOff]).toEqual(['x'.repeat(TEXT_BYTES), false]);
  expect([textOf(cut.text), cut.isCutOff]).toEqual([long.slice(0, TEXT_BYTES / 2), true]);
});

test('the true count of each identifier is within the bounds, listed or not', () => {
  const seed = newSeed();
  const stream = fc.array(
    fc.record({
      number: fc.integer({ min: 1, max: 60 }),
      amount: fc.oneof(
        fc.constant(1),
        fc.integer({ min: 1, max: 5_000 }),
        fc.integer({ min: 1, max: 2 ** 36 }),
      ),
      repeat: fc.integer({ min: 1, max: 40 }),
    }),
    { minLength: 1, maxLength: 400 },
  );
  fc.assert(
    fc.property(stream, fc.integer({ min: 1, max: 2 ** 31 - 1 }), (events, random) => {
      const sketch = new TestSketch(random);
      const truth = new Map<string, number>();
      let total = 0;
      for (const { number, amount, repeat } of events) {
        for (let i = 0; i < repeat; i++) {
          sketch.add(identity(number), amount, `u${number}`);
          truth.set(`u${number}`, (truth.get(`u${number}`) ?? 0) + amount);
          total += amount;
        }
      }
      const { entries, floor } = sketch.read();
      const listed = new Map(entries.map((entry) => [textOf(entry.text), entry]));
      for (const [identifier, count] of truth) {
        const entry = listed.get(identifier);
        if (entry === undefined) expect(count).toBeLessThanOrEqual(floor);
        else {
          expect(entry.count).toBeGreaterThanOrEqual(count);
          expect(entry.count - entry.error).toBeLessThanOrEqual(count);
        }
      }
      // A floor without the share of skipped amounts is at most an equal share of the set.
      expect(floor).toBeLessThanOrEqual(Math.ceil((total / WAYS) * 1.5));
    }),
    { seed, numRuns: trialCount(60, 150) },
  );
});

test('a flood of new identifiers leaves the counts of busy ones nearly exact', () => {
  const sketch = new TestSketch(newSeed() | 1);
  const flood = 1_000_000;
  const busy = 20_000;
  for (let i = 1; i <= flood; i++) {
    sketch.add(identity(i + 1_000, i & (SETS - 1)), 1, 'flood');
    if (i % (flood / busy) === 0) sketch.add(identity(7, 9), 1, 'busy');
  }
  const { entries, floor } = sketch.read(10);
  expect(textOf(entries[0].text)).toBe('busy');
  expect(entries[0].count).toBeGreaterThanOrEqual(busy);
  expect(entries[0].error).toBeLessThan(busy / 50);
  // An equal share of the set, and what may have been skipped.
  expect(floor).toBeLessThan((1.6 * (flood + busy * SETS)) / ENTRIES);
  // Of a set, all until its floor is 64, then 64 while it rises by itself: 64 * WAYS * (1 + ln).
  const expected = SETS * 64 * WAYS * (1 + Math.log(flood / SETS / WAYS / 64));
  expect(sketch.taken / expected).toBeGreaterThan(0.9);
  expect(sketch.taken / expected).toBeLessThan(1.1);
});
