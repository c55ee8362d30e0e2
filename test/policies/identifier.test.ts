import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import {
  IDENTIFIER_MAX_CHARACTERS,
  IDENTIFIER_PART_MAX_CHARACTERS,
} from '../../src/core/constants.ts';
import { IdentifierReader, type RequestAttributes } from '../../src/policies/identifier.ts';
import { gatewaysOf, type Policy, readPolicies } from '../../src/policies/policy.ts';
import { trialCount } from '../support/guarantees.ts';

function readPolicy(fields: object): Policy {
  return readPolicies({ test: { gateway: 'nginx', limit: 1, duration: 1_000, ...fields } })[0];
}

/** @param headers by name; an array for a header of several lines */
function gatewayRequest(
  headers: Record<string, string | string[]>,
  method = 'GET',
  pathSuffix = '',
): RequestAttributes {
  const lines = (name: string) => [headers[name] ?? []].flat();
  return {
    method,
    pathSuffix,
    header: (name) => lines(name).join(', '),
    headerCount: (name) => lines(name).length,
  };
}

/** @param fields with one gateway */
function readerFor(fields: object): IdentifierReader {
  const policy = readPolicy(fields);
  return new IdentifierReader(policy, gatewaysOf(policy)[0]);
}

function identifierFor(
  fields: object,
  ...request: Parameters<typeof gatewayRequest>
): string | undefined {
  return readerFor(fields).read(gatewayRequest(...request));
}

describe('the identifier of a request', () => {
  test('is its address, header, cookie, method or path', () => {
    expect(identifierFor({}, { 'x-forwarded-for': '10.1.2.3' })).toBe('10.1.2.3');
    expect(identifierFor({ identify: 'header:X-Api-Key' }, { 'x-api-key': 'aB|%*' })).toBe('aB|%*');
    expect(identifierFor({ identify: 'cookie:id' }, { cookie: 'a=b; id=q|z ; ix=2' })).toBe('q|z');
    const forwarded = { 'x-forwarded-method': 'POST', 'x-forwarded-uri': '/a/b?c=/d' };
    expect(identifierFor({ identify: 'method' }, forwarded)).toBe('POST');
    expect(identifierFor({ identify: 'path' }, forwarded)).toBe('/a/b');
  });

  test('is the address in a header, grouped as that of the connection', () => {
    const identify = 'ip:header:CF-Connecting-IP';
    const read = (value: string | string[], more: object = {}) => {
      return identifierFor({ identify, ...more }, { 'cf-connecting-ip': value });
    };
    expect(read('9.9.9.9')).toBe('9.9.9.9');
    for (const same of ['::ffff:9.9.9.9', '64:ff9b::9.9.9.9', ' 9.9.9.9:443 ']) {
      expect([same, read(same)]).toEqual([same, '9.9.9.9']);
    }
    for (const near of ['2001:db8::1', '2001:DB8::2', '[2001:db8::3]:443']) {
      expect([near, read(near)]).toEqual([near, '2001:db8::/64']);
    }
    expect(read('2001:db8:0:ff::1', { ipv6Prefix: 56 })).toBe('2001:db8::/56');
    // It is one address: the number of trusted proxies does not matter.
    expect(read('9.9.9.9', { trustedHops: 3 })).toBe('9.9.9.9');
    expect(read([])).toBeUndefined();
    const parts = { identify: [identify, 'method'] };
    const headers = { 'cf-connecting-ip': '9.9.9.9', 'x-forwarded-method': 'GET' };
    expect(identifierFor(parts, headers)).toBe('9.9.9.9|GET');
    expect(readerFor({ identify }).headers).toEqual(['cf-connecting-ip']);
    expect(readerFor({ identify }).requiredParts).toBe('an address in the header cf-connecting-ip');
  });

  test.each<[string | string[]]>([
    [['9.9.9.9', '8.8.8.8']],
    [['9.9.9.9', '9.9.9.9']],
    ['9.9.9.9, 8.8.8.8'],
    ['unknown'],
    [','],
  ])('is that of all unidentified clients for %j in place of an address', (value) => {
    const headers = { 'true-client-ip': value };
    for (const gateway of ['nginx', 'envoy']) {
      expect(identifierFor({ gateway, identify: 'ip:header:true-client-ip' }, headers)).toBe('');
    }
  });

  test('is the same for all spellings of a cookie or of credentials', () => {
    const cookie = (text: string) => identifierFor({ identify: 'cookie:id' }, { cookie: text });
    const spellings = [
      'abc',
      '"abc"',
      '%61bc',
      'a%62c',
      '"%61%62%63"',
      ' abc\t',
      '\u2003abc\u0085',
    ];
    for (const value of spellings) expect(cookie(`id=${value}`)).toBe('abc');
    expect(cookie('\u00a0id\u2003=abc')).toBe('abc');
    expect(cookie('id=%2561bc')).toBe('%61bc');
    expect(cookie('id=abc%')).toBe('abc%');
    expect(cookie('ID=1; id=8=9')).toBe('8=9');
    for (const none of ['', 'id', 'id=', 'ID=7', 'a=id=6']) expect(cookie(none)).toBeUndefined();
    // Some applications read each of these as abc.
    const ambiguous = ['"abc', '"abcX', '" abc"', '"a\\bc"', '"\\141bc"', 'abc x=1', 'abc, x=1'];
    for (const value of [...ambiguous, 'a"bc', '"', 'ab\u2028c', 'ab\u00e9']) {
      expect([value, cookie(`id=${value}`)]).toEqual([value, '']);
    }
    const credentials = (authorization: string) => {
      return identifierFor({ identify: 'header:Authorization' }, { authorization });
    };
    for (const blanks of [' ', '   ', '\t', ' \t ']) {
      expect(credentials(`BEARER${blanks}x`)).toBe('bearer x');
      expect(credentials(`Bearer${blanks}x${blanks}y`)).toBe('bearer x');
      expect(credentials(`Digest${blanks}x, y`)).toBe('digest x, y');
    }
    for (const token of ['YTpi', 'YTpi=', 'YTpi yz']) {
      expect(credentials(`Basic ${token}`)).toBe('basic YTpi');
    }
    // Some decoders read these as the same, others do not.
    for (const token of ['Y.T~pi', 'YT-pi', 'YT=pi'])
      expect(credentials(`Basic ${token}`)).toBe('');
    expect(credentials('x')).toBe('x');
  });

  test('is the same for all spellings of the signature of a token', () => {
    const [header, payload] = ['eyJhbGciOiJIUzI1NiJ9', 'eyJzdWIiOiJhIn0'];
    const signature = 'dGhpcyBpcyBubyBzaWduYXR1cmU';
    const token = `${header}.${payload}.${signature}`;
    const inHeader = (text: string) =>
      identifierFor({ identify: 'header:x-token' }, { 'x-token': text });
    const readers = [
      (text: string) =>
        identifierFor({ identify: 'header:authorization' }, { authorization: `Bearer ${text}` }),
      (text: string) => identifierFor({ identify: 'cookie:id' }, { cookie: `id=${text}` }),
      inHeader,
    ];
    for (const identify of readers) {
      expect(identify(token)).toContain(token);
      expect(identify(`${token}=`)).toBe(identify(token));
      for (const end of ['!', '~', '=A']) expect(identify(token + end)).toBe('');
      // The last two bits are padding.
      expect(identify(`${token.slice(0, -1)}V`)).toBe(identify(token));
      expect(identify(`${header}.${payload}!.${signature}`)).not.toBe(identify(token));
      expect(identify(`${header}.${payload}.${signature}A`)).not.toBe(identify(token));
    }
    const encrypted = inHeader(`${header}.a2V5.aXY.dGV4dA.dGFn`);
    expect(inHeader(`${header}.a2V5.aXZ.dGV4dB.dGFn=`)).toBe(encrypted);
    expect(inHeader(`${header}.a2V5.aX!Y.dGV4dA.dGFn`)).toBe('');
    expect(inHeader('eyJ.a!.b!.c!')).toBe('eyJ.a!.b!.c!');
    expect(inHeader('ewa.example.com!')).toBe('ewa.example.com!');
    for (const text of [`JWT ${token}`, `JWT  ${token} 4`, `jwt\t${token}=`]) {
      expect(inHeader(text)).toBe(`jwt ${token}`);
    }
  });

  test('uses only the fields that its gateway sets', () => {
    const forged = { 'x-forwarded-method': 'POST', 'x-forwarded-uri': '/forged' };
    for (const gateway of ['envoy', 'istio']) {
      expect(identifierFor({ gateway, identify: 'method' }, forged, 'PUT', '/own')).toBe('PUT');
      expect(identifierFor({ gateway, identify: 'path' }, forged, 'PUT', '/own')).toBe('/own');
    }
    for (const gateway of ['nginx', 'caddy', 'haproxy', 'traefik', 'apisix', 'express']) {
      expect(identifierFor({ gateway, identify: 'method' }, {}, 'PUT', '/own')).toBeUndefined();
      expect(identifierFor({ gateway, identify: 'path' }, {}, 'PUT', '/own')).toBeUndefined();
    }
    const addresses = { 'x-real-ip': '1.1.1.1', forwarded: 'for=1.1.1.1' };
    expect(identifierFor({}, addresses)).toBeUndefined();
  });

  test.each(['envoy', 'istio'] as const)(
    'is empty if %s may have joined repeated headers with a comma',
    (gateway) => {
      const key = (value: string) => {
        return identifierFor({ gateway, identify: 'header:x-api-key' }, { 'x-api-key': value });
      };
      expect(key('good')).toBe('good');
      for (const value of ['good,7', '7,good', 'good, 7', ',good', 'good,']) {
        expect([value, key(value)]).toEqual([value, '']);
      }
      expect(identifierFor({ gateway, identify: 'header:cookie' }, { cookie: 'id=1,id=2' })).toBe(
        '',
      );
      const cookie = (value: string) => {
        return identifierFor({ gateway, identify: 'cookie:id' }, { cookie: value });
      };
      expect(cookie('a=b,c; id=good')).toBe('good');
      for (const value of ['id=7; a=b,id=good', 'id=7,id=good', 'a=b,id=good; c=d,id=7']) {
        expect([value, cookie(value)]).toEqual([value, '']);
      }
      // Other gateways send each line unchanged, or only the line that they forward.
      const plain = { gateway: 'nginx', identify: 'header:x-api-key' };
      expect(identifierFor(plain, { 'x-api-key': 'good,7' })).toBe('good,7');
    },
  );

  test('is the only cookie of its name, in any header of cookies', () => {
    const identify = (cookie: string) => identifierFor({ identify: 'cookie:id' }, { cookie });
    const piece = fc.constantFrom(
      ...['id', 'i', 'd', '=', ';', ' ', '\t', '\u2003', 'x', '"', '%61'],
    );
    fc.assert(
      fc.property(fc.array(piece, { maxLength: 20 }), (pieces) => {
        const header = pieces.join('');
        const pairs = header.split(';').map((pair) => pair.split('='));
        const found = pairs.filter(([name, ...value]) => name.trim() === 'id' && value.length > 0);
        const [only = [], ...others] = found;
        if (others.length > 0) expect(identify(header)).toBe('');
        else if (only.length === 0) expect(identify(header)).toBeUndefined();
        else expect(identify(header)).toBe(identify(['id', ...only.slice(1)].join('=')));
      }),
      { numRuns: trialCount(1_000, 5_000) },
    );
  });

  test('is undefined if a part is missing', () => {
    const identify = ['ip', 'header:key', 'cookie:id', 'path'];
    const required = { 'x-forwarded-for': '10.1.2.3', key: 'k', 'x-forwarded-uri': '/' };
    const complete = { ...required, cookie: 'id=c' };
    expect(identifierFor({ identify }, complete)).toBe('10.1.2.3|k|c|/');
    for (const name of Object.keys(complete)) {
      expect(identifierFor({ identify }, { ...complete, [name]: '' })).toBeUndefined();
      expect(identifierFor({ identify }, { ...complete, [name]: [] })).toBeUndefined();
    }
  });

  test('is a digest if it would be longer than the maximum', () => {
    const key = (key: string) => identifierFor({ identify: 'header:key' }, { key });
    const most = '\u{1f600}'.repeat(IDENTIFIER_MAX_CHARACTERS);
    expect(key(most)).toBe(most);
    const characters = 'a'.repeat(IDENTIFIER_MAX_CHARACTERS);
    expect(key(characters)).toBe(characters);
    for (const long of [`${most}a`, `${characters}a`]) {
      expect(key(long)).toMatch(/^sha256:[0-9a-f]{64}$/);
    }
    expect(key(`${most}a`)).not.toBe(key(`${most}b`));
    const half = 'a'.repeat(IDENTIFIER_MAX_CHARACTERS / 2);
    const both = identifierFor(
      { identify: ['header:key', 'cookie:id'] },
      { key: half, cookie: `id=${half}` },
    );
    expect(both).toBe(key(`${half}|${half}`));
  });

  test('is empty if a part is repeated, too long or not text', () => {
    const most = 'x'.repeat(IDENTIFIER_PART_MAX_CHARACTERS);
    expect(identifierFor({ identify: 'header:key' }, { key: most })).not.toBe('');
    for (const key of [`${most}a`, 'a\ufffd', ['a', 'a'], ['', 'a']]) {
      expect(identifierFor({ identify: 'header:key' }, { key })).toBe('');
      // Also if another part is missing.
      expect(identifierFor({ identify: ['ip', 'header:key'] }, { key })).toBe('');
    }
    for (const cookie of ['id=1; id=2', 'id=1; a=b; id=1', 'id=; id=1', `id=${most}a`]) {
      expect(identifierFor({ identify: 'cookie:id' }, { cookie })).toBe('');
    }
    for (const chain of ['unknown', '10.1.2.3, ', '_']) {
      expect(identifierFor({}, { 'x-forwarded-for': chain })).toBe('');
    }
    expect(identifierFor({ trustedHops: 2 }, { 'x-forwarded-for': '10.1.2.3' })).toBe('');
  });

  test('differs for different combinations of parts', () => {
    const part = fc.string({
      unit: fc.constantFrom('|', '%', '2', '5', '7', 'C', 'a'),
      minLength: 1,
    });
    const identify = ['header:a', 'header:b', 'cookie:c'];
    const identifier = ([a, b, c]: string[]) =>
      identifierFor({ identify }, { a, b, cookie: `c=${c}` });
    const triple = fc.tuple(part, part, part);
    fc.assert(
      fc.property(triple, triple, (one, other) => {
        expect(identifier(one) === identifier(other)).toBe(one.join(' ') === other.join(' '));
      }),
      { numRuns: trialCount(500, 2_000) },
    );
  });

  test('takes time linear in the length of a request head', () => {
    // In quadratic time this test would take many minutes.
    const long = (text: string) => text.repeat(320_000 / text.length);
    const repeated = [
      ...[' ', ';', '=', '"', '%', 'id=', '; id', ' \t', ',', ':'],
      ...['1.', '::1,', 'a ', '/', '../', 'a/'],
    ];
    const parts = ['cookie:id', 'ip', 'header:authorization', 'path'];
    for (const text of repeated) {
      const value = `id=a${long(text)}b`;
      const addresses = { 'x-forwarded-for': value, 'x-forwarded-uri': `/${value}` };
      const headers = { cookie: value, authorization: value, ...addresses };
      for (let i = 0; i < 5; i++) {
        for (const identify of parts) identifierFor({ identify, trustedHops: 32 }, headers);
      }
    }
  });

  test('reads only the headers that it needs', () => {
    const headers = (fields: object) => readerFor(fields).headers;
    expect(headers({})).toEqual(['x-forwarded-for']);
    expect(headers({ identify: ['cookie:a', 'cookie:b', 'header:K'] })).toEqual(['cookie', 'k']);
    expect(headers({ gateway: 'envoy', identify: ['method', 'path'] })).toEqual([]);
    expect(headers({ identify: ['method', 'path'] })).toEqual([
      'x-forwarded-method',
      'x-forwarded-uri',
    ]);
  });
});
