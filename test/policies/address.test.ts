import { isIPv6 } from 'node:net';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { clientAddress } from '../../src/policies/address.ts';

const canonical = (text: string, prefix = 64) => clientAddress(text, 1, prefix);

describe('the address of a client', () => {
  test.each([
    ['203.0.113.7', 1, '203.0.113.7'],
    ['  203.0.113.7 ', 1, '203.0.113.7'],
    ['forged, 203.0.113.7', 1, '203.0.113.7'],
    ['1.1.1.1, 203.0.113.7', 1, '203.0.113.7'],
    ['forged, 203.0.113.7,10.0.0.1', 2, '203.0.113.7'],
    ['9.9.9.9, 203.0.113.7, 10.0.0.2, 10.0.0.1', 3, '203.0.113.7'],
    // An empty line of the header is an element.
    ['203.0.113.7,,10.0.0.1', 3, '203.0.113.7'],
    ['203.0.113.7:4711', 1, '203.0.113.7'],
    ['[2001:db8::1]:4711', 1, '2001:db8::/64'],
    ['[2001:db8::1]', 1, '2001:db8::/64'],
    ['2001:DB8:1:2:3:4:5:6', 1, '2001:db8:1:2::/64'],
    ['fe80::1%eth0', 1, 'fe80::/64'],
    ['::ffff:203.0.113.7', 1, '203.0.113.7'],
    ['::ffff:cb00:7107', 1, '203.0.113.7'],
    // NAT64, by the prefix that all networks may use.
    ['64:ff9b::203.0.113.7', 1, '203.0.113.7'],
    ['[64:ff9b::cb00:7107]:443', 1, '203.0.113.7'],
    ['64:ff9b:0:0:0:1:203.0.113.7', 1, '64:ff9b::/64'],
    ['64:ff9b:1::203.0.113.7', 1, '64:ff9b:1::/64'],
  ])('of %j, %i from the right, is %s', (chain, hops, address) => {
    expect(clientAddress(chain, hops, 64)).toBe(address);
  });

  test.each([
    ['', 1],
    [',', 1],
    ['203.0.113.7,', 1],
    ['unknown', 1],
    ['_hidden', 1],
    ['203.0.113', 1],
    ['203.0.113.256', 1],
    ['0203.0.113.7', 1],
    ['[203.0.113.7', 1],
    ['2001:db8::1::2', 1],
    ['"203.0.113.7"', 1],
    ['203.0.113.7, forged', 1],
    // The request passed through fewer proxies than are trusted.
    ['203.0.113.7', 2],
    [',203.0.113.7', 2],
    ['1.1.1.1, 203.0.113.7', 3],
  ])('of %j, %i from the right, is undefined', (chain, hops) => {
    expect(clientAddress(chain, hops, 64)).toBeUndefined();
  });

  const groups = fc.array(fc.oneof(fc.constant(0), fc.nat(0xffff)), {
    minLength: 8,
    maxLength: 8,
  });
  const bits = (address: number[]) => {
    return address.reduce((value, group) => (value << 16n) | BigInt(group), 0n);
  };
  const EMBEDDING = [0xffffn, 0x64_ff9b_0000_0000_0000_0000n];
  const isIpv4 = (address: number[]) => EMBEDDING.includes(bits(address) >> 32n);
  /** @param style bits: leading zeros, compressed zeros, upper case */
  const format = (address: number[], style: number) => {
    const text = address
      .map((group) => group.toString(16).padStart(style & 1 ? 4 : 1, '0'))
      .join(':');
    const shorter = style & 2 ? text.replace(/(^|:)0{1,4}(:0{1,4})+(:|$)/, '::') : text;
    return style & 4 ? shorter.toUpperCase() : shorter;
  };

  test('of IPv6 has one form, that of RFC 5952, however it was written', () => {
    fc.assert(
      fc.property(groups, fc.nat(7), (address, style) => {
        fc.pre(!isIpv4(address));
        const text = format(address, style);
        expect([text, isIPv6(text)]).toEqual([text, true]);
        // The URL parser uses the same form.
        expect(canonical(text, 128)).toBe(new URL(`http://[${text}]`).hostname.slice(1, -1));
      }),
    );
  });

  test('of IPv6 differs exactly if the bits of the prefix differ', () => {
    fc.assert(
      fc.property(groups, groups, fc.integer({ min: 1, max: 128 }), (a, b, prefix) => {
        // Random addresses rarely share a prefix, so the second one copies most of it.
        const near = a.map((group, i) => (i * 16 < prefix - 20 ? group : b[i]));
        fc.pre(!isIpv4(a) && !isIpv4(near));
        const network = (address: number[]) => bits(address) >> BigInt(128 - prefix);
        const isSame = canonical(format(a, 0), prefix) === canonical(format(near, 0), prefix);
        expect(isSame).toBe(network(a) === network(near));
      }),
    );
  });

  test('of IPv4 is the same in each form that contains it', () => {
    fc.assert(
      fc.property(fc.ipV4(), fc.integer({ min: 1, max: 128 }), (address, prefix) => {
        for (const text of [address, `::ffff:${address}`, `64:ff9b::${address}`]) {
          expect([text, canonical(text, prefix)]).toEqual([text, address]);
        }
      }),
    );
  });
});
