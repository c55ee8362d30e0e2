import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { Hasher, newIdentity } from '../../src/core/hash.ts';
import { trialCount } from '../support/guarantees.ts';

const KEY = Buffer.from('0123456789abcdef');

/** Well-formed text of every kind. */
const text = fc.string({ unit: 'binary', maxLength: 60 });

function hashOf(hasher: Hasher, namespace: string, identifier: string): string {
  return Object.values(hasher.hash(hasher.namespace(namespace), identifier, newIdentity())).join();
}

describe('the hash', () => {
  test('is Chaskey-8, by the published vectors', () => {
    const key = Buffer.alloc(16);
    [0x833d3433, 0x009f389f, 0x2398e64f, 0x417acf39].forEach((word, i) => {
      key.writeUInt32LE(word, 4 * i);
    });
    const vectors = new Map([
      [0, [0x792e8fe5, 0x75ce87aa, 0x2d1450b5, 0x1191970b]],
      [1, [0x13a9307b, 0x50e62c89, 0x4577bd88, 0xc0bbdc18]],
      [2, [0x55df8922, 0x2c7ff577, 0x73809ef4, 0x4e5084c0]],
      [7, [0x7f670454, 0xf25b03e0, 0x19d68362, 0x9f4d24d8]],
      [13, [0x29496f33, 0xac62d558, 0xe0bad605, 0xc5a538c6]],
      [15, [0x51b94da4, 0xefcc4de8, 0x192412ea, 0xbbc170dd]],
    ]);
    const hasher = new Hasher(key);
    for (const [length, words] of vectors) {
      const message = Buffer.from(Array.from({ length }, (_, i) => i));
      expect([...hasher.chaskey(message)].map((word) => word >>> 0)).toEqual(words);
    }
  });

  test('is the published algorithm over (length, namespace, padding, identifier) in UTF-8', () => {
    const hasher = new Hasher(KEY);
    fc.assert(
      fc.property(
        text,
        text.filter((t) => t !== ''),
        (namespace, identifier) => {
          const name = Buffer.from(namespace);
          const prefix = Buffer.alloc(Math.ceil((4 + name.length) / 16) * 16);
          prefix.writeUInt32LE(name.length);
          name.copy(prefix, 4);
          const whole = hasher.chaskey(Buffer.concat([prefix, Buffer.from(identifier)])).join();
          expect(hashOf(hasher, namespace, identifier)).toBe(whole);
        },
      ),
      { numRuns: trialCount(500, 3_000) },
    );
  });

  test('differs for different pairs of namespace and identifier, empty ones included', () => {
    const hasher = new Hasher(KEY);
    const close = ['', 'a', 'ab', 'b', '\0', '\u0001', 'a\0', '\u00e9', 'e\u0301', 'x'.repeat(16)];
    const pairs = close.flatMap((namespace) => close.map((id) => [namespace, id] as const));
    const hashes = new Set(pairs.map(([namespace, id]) => hashOf(hasher, namespace, id)));
    expect(hashes.size).toBe(pairs.length);
  });

  test('depends on the key', () => {
    const other = new Hasher(Buffer.from('0123456789abcdeF'));
    expect(hashOf(other, 'default', 'user')).not.toBe(hashOf(new Hasher(KEY), 'default', 'user'));
  });

  test('never gives 0 as the word that marks an empty slot', () => {
    const hasher = new Hasher(KEY);
    const state = hasher.namespace('n');
    const id = newIdentity();
    for (let i = 0; i < 20_000; i++) {
      expect(hasher.hash(state, `id${i}`, id).h3 !== 0).toBe(true);
    }
  });
});
