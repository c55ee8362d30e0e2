import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { ApiError } from '../../src/core/errors.ts';
import { identifierLike, requireIdentifiable } from '../../src/policies/identifiable.ts';
import { IdentifierReader } from '../../src/policies/identifier.ts';
import { gatewaysOf, type Policy, readPolicies } from '../../src/policies/policy.ts';
import { trialCount } from '../support/guarantees.ts';

function policyWith(fields: object): Policy {
  return readPolicies({ search: { gateway: 'nginx', limit: 1, duration: 1_000, ...fields } })[0];
}

/** The text of the error; undefined if an override of the identifier is accepted. */
function errorFor(fields: object, identifier: string, isCidr = false): string | undefined {
  try {
    requireIdentifiable(policyWith(fields), identifier, isCidr);
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    return error.message;
  }
  return undefined;
}

describe('an override of a text that no request of the policy has', () => {
  test('is rejected with the identifier that requests have', () => {
    expect(errorFor({}, '2001:db8::1')).toBe(
      'no request has the identifier "2001:db8::1": the policy for the namespace "search"' +
        ' identifies clients by ip; give "2001:db8::/64"',
    );
    for (const [fields, identifier, instead] of [
      [{}, '2001:DB8::/64', '2001:db8::/64'],
      [{}, '2001:db8::1/64', '2001:db8::/64'],
      [{}, '2001:db8::/128', '2001:db8::/64'],
      [{}, '203.0.113.7/32', '203.0.113.7'],
      [{ ipv6Prefix: 56 }, '2001:db8:0:ff::/64', '2001:db8::/56'],
      [{ ipv6Prefix: 128 }, '2001:0db8::1', '2001:db8::1'],
      [{}, '::ffff:203.0.113.7', '203.0.113.7'],
      [{}, '64:ff9b::203.0.113.7', '203.0.113.7'],
      [{}, '203.0.113.7:443', '203.0.113.7'],
      [{ identify: 'ip:header:true-client-ip' }, '2001:db8::1', '2001:db8::/64'],
      [{ trustedHops: 3 }, '2001:db8::1', '2001:db8::/64'],
      [{ identify: ['ip', 'path'] }, '2001:db8::1|/a', '2001:db8::/64|/a'],
      [{ identify: ['ip', 'path'] }, '203.0.113.7|/a/../b?c', '203.0.113.7|/b'],
      [{ identify: 'path' }, '/a//b', '/a/b'],
      [{ identify: 'path', gateway: 'envoy' }, '/a?b', '/a'],
      [{ identify: 'header:authorization' }, 'Bearer  k1', 'bearer k1'],
      [{ identify: 'header:x-api-key' }, ' k1 ', 'k1'],
      // A pattern would match other texts too, but no address has an upper case.
      [{}, '2001:DB8:*', '2001:db8:*'],
    ] as const) {
      expect(errorFor(fields, identifier)).toContain(`; give ${JSON.stringify(instead)}`);
      expect([instead, errorFor(fields, instead)]).toEqual([instead, undefined]);
    }
  });

  test('is rejected with the block that is probably meant, and never widened', () => {
    expect(errorFor({}, '203.0.113.0/24')).toContain(
      '; for each address inside of it, set "203.0.113.0/24" with "cidr"',
    );
    expect(errorFor({}, '203.0.113.7/24')).toContain('set "203.0.113.0/24" with "cidr"');
    expect(errorFor({}, '2001:db8::/32')).toContain('set "2001:db8::/32" with "cidr"');
    expect(errorFor({}, '203.0.113.0/24', true)).toBeUndefined();
    expect(errorFor({}, '2001:db8::/32', true)).toBeUndefined();
    expect(errorFor({}, '2001:db8::/64', true)).toBeUndefined();
    expect(errorFor({}, '2001:db8::/65', true)).toContain('; give "2001:db8::/64"');
    expect(errorFor({ ipv6Prefix: 128 }, '2001:db8::/65', true)).toBeUndefined();
  });

  test('is rejected with an example if its values are not those of the parts', () => {
    const address = 'give an address such as "203.0.113.7" or "2001:db8::/64"';
    for (const text of ['user_1', '203.0.113', 'user_*', '203.0.113.7|*']) {
      expect(errorFor({}, text)).toContain(address);
    }
    for (const text of ['203.0.113.7', 'a|b|c', 'user|/a']) {
      expect(errorFor({ identify: ['ip', 'path'] }, text)).toContain('the values of ip | path');
    }
    for (const identify of [['ip', 'path'], 'header:x-api-key', 'cookie:id']) {
      expect(errorFor({ identify }, '203.0.113.0/24', true)).toContain('without "cidr"');
    }
  });
});

test('an override of any other text or pattern is accepted', () => {
  for (const text of ['203.0.113.*', '*', '2001:db8:*', '*/64', '203.0.113.7', '2001:db8::/64']) {
    expect([text, errorFor({}, text)]).toEqual([text, undefined]);
  }
  const digest = `sha256:${'a'.repeat(64)}`;
  const keys = { identify: 'header:x-api-key' };
  for (const text of ['k1', 'k*', 'a|b', 'a, b', '203.0.113.0/24', 'é', digest]) {
    expect([text, errorFor(keys, text)]).toEqual([text, undefined]);
  }
  // Only Envoy joins repeated headers with a comma.
  expect(errorFor({ ...keys, gateway: 'envoy' }, 'a, b')).toContain('no request has');
  expect(errorFor({ ...keys, gateway: ['nginx', 'envoy'] }, 'a, b')).toBeUndefined();
  expect(errorFor({ identify: 'cookie:id' }, 'a b"%2f')).toBeUndefined();
  expect(errorFor({ identify: ['ip', 'path'] }, '203.0.113.*')).toBeUndefined();
  expect(errorFor({ identify: ['ip', 'path'] }, digest)).toBeUndefined();
});

test('each identifier that a request has is accepted, and is that of the request', () => {
  const word = fc.oneof(
    fc.string({ maxLength: 12 }),
    fc.string({
      unit: fc.constantFrom('a', '|', '%', '7', 'C', '2', '5', '"', ' ', ',', '/', '.'),
    }),
    fc.ipV4(),
    fc.ipV6(),
    fc.webPath(),
    fc.base64String().map((text) => `Basic ${text}`),
    fc.constantFrom('eyJhbGciOiJIUzI1NiJ9.e30.c2ln==', 'Bearer eyJh.e30.YQ', '::ffff:1.2.3.4'),
  );
  const parts = ['ip', 'method', 'path', 'header:x-key', 'header:authorization', 'cookie:id'];
  const identify = fc.uniqueArray(
    fc.constantFrom(...parts, 'ip:header:x-address', 'cookie:a', 'ip:header:x-key'),
    { minLength: 1, maxLength: 4 },
  );
  const gateway = fc.constantFrom<string | string[]>('nginx', 'envoy', ['caddy', 'envoy']);
  const fields = fc.record({
    ...{ identify, gateway, trustedHops: fc.integer({ min: 1, max: 3 }) },
    ipv6Prefix: fc.constantFrom(1, 16, 48, 64, 128),
  });
  const values = fc.record({
    ...{ method: word, path: word, 'x-key': word, authorization: word, cookie: word },
    ...{ 'x-address': word, 'x-forwarded-for': word },
  });
  let identified = 0;
  fc.assert(
    fc.property(fields, values, (fields, sent) => {
      const policy = policyWith(fields);
      const headers: Record<string, string> = {
        ...sent,
        'x-forwarded-method': sent.method,
        'x-forwarded-uri': sent.path,
        cookie: `id=${sent.cookie}; a=${encodeURIComponent(sent['x-key'])}`,
      };
      for (const gateway of gatewaysOf(policy)) {
        const identifier = new IdentifierReader(policy, gateway).read({
          method: sent.method,
          pathSuffix: sent.path,
          // HTTP has no blanks at the ends of a header.
          header: (name) => (headers[name] ?? '').trim(),
          headerCount: () => 1,
        });
        if (identifier === undefined) continue;
        if (identifier !== '') identified++;
        const like = identifierLike(policy, identifier);
        expect([identifier, like]).toEqual([identifier, identifier]);
      }
    }),
    { numRuns: trialCount(3_000, 30_000) },
  );
  expect(identified).toBeGreaterThan(500);
});
