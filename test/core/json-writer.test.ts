import fc from 'fast-check';
import { expect, test } from 'vitest';
import { Bytes } from '../../src/core/bytes.ts';
import { encodeFragment, JsonWriter } from '../../src/core/json-writer.ts';
import { trialCount } from '../support/guarantees.ts';

const writer = new JsonWriter(100_000);
const memory = new Bytes(10_000);
const text = fc.string({ unit: 'binary', maxLength: 40 });
const amount = fc.oneof(
  fc.maxSafeNat(),
  fc.nat(1_000),
  fc.nat(15).map((power) => 10 ** power),
  fc.nat(15).map((power) => 10 ** power - 1),
  fc.constant(Number.MAX_SAFE_INTEGER),
);

const flatObject = fc.dictionary(
  fc.string({ unit: fc.constantFrom(...'abcXYZ_'), minLength: 1, maxLength: 12 }),
  fc.oneof(text, amount, fc.boolean(), fc.constant(null)),
  { minKeys: 1, maxKeys: 8, noNullPrototype: true },
);

/** A write, and the text that it produces. */
const part = fc.oneof(
  text.map((value) => ({ write: () => writer.writeFragment(encodeFragment(value)), is: value })),
  text.map((value) => ({ write: () => writer.writeJsonText(value), is: JSON.stringify(value) })),
  text.map((value) => ({
    write: () => writer.writeUncachedJsonText(value),
    is: JSON.stringify(value),
  })),
  fc.string({ unit: 'grapheme', maxLength: 40 }).map((value) => ({
    write: () => writer.writeUtf8(value),
    is: value,
  })),
  text.map((value) => ({
    write: () => writer.writeJsonTextFrom(memory, 3, memory.write(value, 3)),
    is: JSON.stringify(value),
  })),
  flatObject.map((value) => ({
    write: () => writer.writeFlatObject(value),
    is: JSON.stringify(value),
  })),
  amount.map((value) => ({ write: () => writer.writeInteger(value), is: String(value) })),
  fc
    .string({ unit: 'binary-ascii', maxLength: 40 })
    .map((value) => ({ write: () => writer.writeAscii(value), is: value })),
);

test('a body is the sequence of its writes, after any earlier body', () => {
  fc.assert(
    fc.property(
      fc.array(part, { maxLength: 12 }),
      fc.array(part, { maxLength: 3 }),
      (all, more) => {
        writer.seek(0);
        for (const { write } of all) write();
        const whole = all.map(({ is }) => is).join('');
        expect(writer.finish().toString()).toBe(whole);
        // The bytes before a position stay, and those after it are written again.
        const length = Buffer.byteLength(whole);
        writer.seek(length);
        for (const { write } of more) write();
        expect(writer.view(length).toString()).toBe(whole);
        expect(writer.finish().toString()).toBe(whole + more.map(({ is }) => is).join(''));
      },
    ),
    { numRuns: trialCount(2_000, 10_000) },
  );
});
