import fc from 'fast-check';
import { expect, test } from 'vitest';
import { Bytes } from '../../src/core/bytes.ts';
import { trialCount } from '../support/guarantees.ts';

test('a text is read as it was written, at any offset; a text that does not fit is rejected', () => {
  fc.assert(
    fc.property(fc.string({ unit: 'binary', maxLength: 40 }), fc.nat(60), (text, at) => {
      const memory = new Bytes(64);
      const end = at + Buffer.byteLength(text);
      if (end > 64) expect(() => memory.write(text, at)).toThrow('does not fit');
      else {
        expect(memory.write(text, at)).toBe(end);
        expect(memory.text(at, end)).toBe(text);
      }
    }),
    { numRuns: trialCount(500, 3_000) },
  );
});
