/** Overrides of CIDR blocks, against a model that compares numbers. */

import fc from 'fast-check';
import { afterAll, describe, expect, test } from 'vitest';
import { canonicalBlock } from '../../src/overrides/cidr.ts';
import type { OverrideEntry } from '../../src/overrides/sets.ts';
import { OverrideTables } from '../../src/overrides/tables.ts';
import { Trie } from '../../src/overrides/trie.ts';
import { trialCount } from '../support/guarantees.ts';
import { HASH_KEY, OverrideResolver, overrideId } from '../support/override-model.ts';

const TASK = new URL('../../dist/compile.js', import.meta.url);

/** An address or a block as a number: no code of the product reads it. */
interface Network {
  isIpv4: boolean;
  value: bigint;
  prefix: number;
}

const bitsOf = ({ isIpv4 }: Pick<Network, 'isIpv4'>) => (isIpv4 ? 32 : 128);
const beginning = (network: Network, prefix: number) =>
  network.value >> BigInt(bitsOf(network) - prefix);
const contains = (block: Network, network: Network) =>
  block.isIpv4 === network.isIpv4 &&
  block.prefix <= network.prefix &&
  beginning(block, block.prefix) === beginning(network, block.prefix);

const groupsOf = (value: bigint, bits: number, size: number) =>
  Array.from({ length: bits / size }, (_, i) => {
    return Number((value >> BigInt(bits - size * (i + 1))) & ((1n << BigInt(size)) - 1n));
  });
const dotted = (value: bigint) => groupsOf(value, 32, 8).join('.');

/** Texts of one address. Each of them must match the same blocks. */
function spellings({ isIpv4, value, prefix }: Network): string[] {
  if (isIpv4) {
    const text = dotted(value);
    if (prefix < 32) return [`${text}/${prefix}`, `::ffff:${text}/${96 + prefix}`];
    return [text, `::ffff:${text}`, `64:ff9b::${text}`, `${text}/32`];
  }
  const groups = groupsOf(value, 128, 16).map((group) => group.toString(16));
  const padded = groups.map((group) => group.padStart(4, '0')).join(':');
  const texts = [groups.join(':'), padded.toUpperCase(), new URL(`http://[${padded}]`).hostname];
  const plain = texts.map((text) => text.replace(/[[\]]/g, ''));
  return prefix < 128 ? plain.map((text) => `${text}/${prefix}`) : plain;
}

/** Addresses that often share a beginning: few of their bits are random. */
const addresses = fc
  .tuple(fc.boolean(), fc.array(fc.tuple(fc.nat(127), fc.nat(3)), { maxLength: 6 }))
  .map(([isIpv4, bits]): Network => {
    const size = bitsOf({ isIpv4 });
    // Not an IPv4 address inside of an IPv6 one.
    let value = isIpv4 ? 0x0a000000n : 0x20010db8n << 96n;
    for (const [at, low] of bits) value ^= BigInt(low & 1) << BigInt(size - 1 - (at % (size / 2)));
    return { isIpv4, value: value | 1n, prefix: size };
  });
/** @param mask whether bits after the prefix are 0, as in a canonical block */
const networks = (mask: boolean) =>
  fc.tuple(addresses, fc.nat(128)).map(([address, length]): Network => {
    const prefix = length % (bitsOf(address) + 1);
    const rest = BigInt(bitsOf(address) - prefix);
    return { ...address, prefix, value: mask ? (address.value >> rest) << rest : address.value };
  });
const canonical = (block: Network) => {
  const [text] = block.isIpv4
    ? [dotted(block.value)]
    : [new URL(`http://[${spellings({ ...block, prefix: 128 })[0]}]`).hostname.slice(1, -1)];
  return `${text}/${block.prefix}`;
};

const entry = (row: number, namespace: string, identifier: string, isCidr = false) => {
  const value = { id: overrideId(row), limit: row, durationMs: 1_000, isAsync: false };
  const isNamespacePattern = namespace.includes('*');
  const block = isCidr ? { isCidr } : {};
  return { row, namespace, isNamespacePattern, identifier, ...block, ...value } as OverrideEntry;
};

const tables = new OverrideTables(HASH_KEY, TASK, (error) => {
  throw error;
});
afterAll(() => tables.close());
const current: OverrideEntry[] = [];
function publish(all: readonly OverrideEntry[]): OverrideResolver {
  for (const old of current.splice(0)) tables.apply(old, undefined);
  for (const one of all) tables.apply(undefined, one);
  current.push(...all);
  return new OverrideResolver(tables.compileSync());
}

describe('a block', () => {
  test('has one canonical text', () => {
    fc.assert(
      fc.property(networks(false), (network) => {
        const rest = BigInt(bitsOf(network) - network.prefix);
        const block = { ...network, value: (network.value >> rest) << rest };
        for (const text of spellings(network)) {
          expect([text, canonicalBlock(text)]).toEqual([text, canonical(block)]);
        }
        expect(canonicalBlock(canonical(block))).toBe(canonical(block));
      }),
    );
  });

  test.each([
    ...['', 'a', '10.0.0.0/33', '::/129', '10.0.0.0/08', '10.0.0.0/-1', '10.0.0.0/', '/8', '10/8'],
    ...['10.0.0.0/8/8', '10.0.0.0 /8', '10.0.0.*', '2001:db8::/+4', '[::]/0', '10.0.0.0:80/32'],
  ])('is not %j', (text) => {
    expect(canonicalBlock(text)).toBeUndefined();
  });

  test.each([
    ['::ffff:10.0.0.0/104', '10.0.0.0/8'],
    ['64:ff9b::/96', '0.0.0.0/0'],
    // It has other addresses too, so it is a block of IPv6.
    ['::/0', '::/0'],
    ['64:ff9b::/64', '64:ff9b::/64'],
  ])('such as %s has the text %s', (text, block) => {
    expect(canonicalBlock(text)).toBe(block);
  });
});

describe('a check', () => {
  test('gets the override of the longest block that contains its address, in any spelling', () => {
    const blocks = fc.uniqueArray(networks(true), { maxLength: 12, selector: canonical });
    const checks = fc.array(fc.oneof(addresses, networks(false)), { minLength: 8, maxLength: 8 });
    let found = 0;
    let missed = 0;
    fc.assert(
      fc.property(blocks, checks, (all, checked) => {
        const resolver = publish(all.map((block, i) => entry(i + 1, 'n', canonical(block), true)));
        for (const network of checked) {
          const matching = all.flatMap((block, i) => {
            return contains(block, network) ? [{ row: i + 1, prefix: block.prefix }] : [];
          });
          matching.sort((a, b) => b.prefix - a.prefix);
          const [expected, ...others] = matching;
          if (expected === undefined) missed++;
          else found++;
          for (const text of spellings(network)) {
            expect([text, resolver.resolveLimit('n', text)]).toEqual([text, expected?.row]);
            expect(resolver.resolveLimit('other', text)).toBeUndefined();
            // `explain` finds the same override.
            const { winner, losers } = tables.match('n', text, 99);
            expect(winner?.id).toBe(expected && overrideId(expected.row));
            expect(losers.map(({ id }) => id)).toEqual(others.map(({ row }) => overrideId(row)));
            for (const { precedence } of losers) expect(precedence.rule).toBe('longer_cidr_block');
          }
        }
      }),
      { numRuns: trialCount(300, 3_000) },
    );
    expect(Math.min(found, missed)).toBeGreaterThan(100);
  });

  test('gets an exact override before a block, and a block before a pattern, in one namespace', () => {
    const block = entry(1, 'n', '10.0.0.0/8', true);
    const pattern = entry(2, 'n', '10.0.0.*');
    const exact = entry(3, 'n', '10.0.0.1');
    const literal = entry(4, 'n', '10.0.0.0/8');
    const ofPattern = entry(5, 'n*', '10.0.0.1');
    const resolver = publish([block, pattern, exact, literal, ofPattern]);
    expect(resolver.resolve('n', '10.0.0.1')).toMatchObject({
      limit: 3,
      overrideId: overrideId(3),
    });
    expect(resolver.resolve('n', '10.0.0.2')).toMatchObject({
      limit: 1,
      overrideId: overrideId(1),
    });
    expect(resolver.resolveLimit('n', '10.0.0.0/8')).toBe(4);
    expect(resolver.resolveLimit('n2', '10.0.0.1')).toBe(5);
    expect(resolver.resolveLimit('n2', '10.0.0.2')).toBeUndefined();
    const rules = (identifier: string) => {
      return tables.match('n', identifier, 9).losers.map(({ precedence }) => precedence);
    };
    expect(rules('10.0.0.1')).toEqual([
      { rule: 'exact_identifier', text: expect.stringContaining('over a CIDR block') },
      { rule: 'exact_identifier', text: expect.stringContaining('over a pattern') },
      { rule: 'exact_namespace', text: expect.any(String) },
    ]);
    expect(rules('10.0.0.2')).toMatchObject([{ rule: 'cidr_block_before_pattern' }]);
  });

  test('compares namespaces first: a pattern of an exact namespace precedes a block of others', () => {
    const all = [
      entry(1, 'n*', '10.0.0.0/8', true),
      entry(2, 'n', '10*'),
      entry(3, '*', '::/0', true),
    ];
    const resolver = publish(all);
    expect(resolver.resolveLimit('n', '10.0.0.1')).toBe(2);
    expect(resolver.resolveLimit('n2', '10.0.0.1')).toBe(1);
    expect(resolver.resolveLimit('x', '2001:db8::1')).toBe(3);
    expect(resolver.resolveLimit('n', '2001:db8::1')).toBe(3);
  });

  test('of a text that is no address gets no override of a block, and patterns match no bits', () => {
    const all = [
      entry(1, '*', '0.0.0.0/0', true),
      entry(2, '*', '::/0', true),
      entry(3, 'n', '4*1'),
    ];
    const resolver = publish(all);
    for (const text of [
      '',
      '4',
      '40',
      'user',
      '10.0.0',
      '10.0.0.1|/',
      '10.0.0.1 ',
      '[::1]',
      '1/1',
    ]) {
      expect([text, resolver.resolveLimit('n', text)]).toEqual([text, undefined]);
    }
    expect(resolver.resolveLimit('n', '0.0.0.1')).toBe(1);
    expect(resolver.resolveLimit('n', '4.0.0.1')).toBe(3);
  });

  test('in a namespace without a block is not parsed, as no scope of it has one', () => {
    const own = new OverrideTables(HASH_KEY, TASK, () => {});
    own.apply(undefined, entry(1, 'blocks', '10.0.0.0/8', true));
    own.apply(undefined, entry(2, '*', 'user_*'));
    own.apply(undefined, entry(3, 'o*', '10.0.0.0/8', true));
    const table = new Trie(own.compileSync().trie!);
    const found = (namespace: string) => [...table.rootsFor(namespace)];
    // The own root | whether a scope has a block | the number of scopes | these | their bits.
    expect(found('blocks')).toEqual([expect.any(Number), 0, 1, 1, 0b10]);
    expect(found('other')).toEqual([0, 1, 2, 0, 1, 0b11]);
    expect(found('none')).toEqual([0, 0, 1, 1, 0b10]);
    expect(table.find(table.rootsFor('blocks'), '10.0.0.1')).toBe(0);
    expect(table.find(table.rootsFor('none'), '10.0.0.1')).toBe(-1);
  });

  test('is matched in a bounded number of steps, also with blocks of each length', () => {
    const nested = Array.from({ length: 129 }, (_, prefix) =>
      entry(prefix + 1, 'n', `::/${prefix}`, true),
    );
    const resolver = publish(nested);
    expect(resolver.resolveLimit('n', '::')).toBe(129);
    expect(resolver.resolveLimit('n', '::1')).toBe(128);
  });
});
