import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { normalizePath } from '../../src/policies/path.ts';

describe('the normalized path', () => {
  test.each([
    ['/', '/'],
    ['/a?b#c', '/a'],
    ['/%2561', '/%2561'],
    ['/a%2fb', '/a%2Fb'],
    ['/%e4%bd%a0', '/%E4%BD%A0'],
    ['/你', '/%E4%BD%A0'],
    ['/a|"b\\', '/a%7C%22b%5C'],
    ['/a%7c', '/a%7C'],
    ['/\ufffd', '/\ufffd'],
    ['/\ud800', '/\ud800'],
    ['/%', '/%'],
    ['/%4', '/%4'],
    ['/%zz', '/%zz'],
    ['/a/../b', '/b'],
    ['/../../a', '/a'],
    ['/a/%2e%2E/b', '/b'],
    ['/a/..', '/'],
    ['/a/b/..', '/a/'],
    ['/a/.', '/a/'],
    ['/.', '/'],
    ['/..a/.b', '/..a/.b'],
    ['//', '/'],
    ['HTTP://host:80/%61?b', '/a'],
    ['http://host', '/'],
    ['http://host?a', '/'],
    ['http:///a', '/a'],
    [`/${'./'.repeat(1_023)}a`, '/a'],
    [`/${'./'.repeat(1_024)}`, undefined],
    ['*', '*'],
    ['host:443', 'host:443'],
    ['', ''],
    ['?a', ''],
  ])('of %j is %j', (target, path) => {
    expect(normalizePath(target)).toBe(path);
  });

  test('is the same for all equivalent paths', () => {
    const segment = fc.string({ unit: fc.constantFrom(...'aZ0-._~!:@;=&%'), maxLength: 6 });
    const named = segment
      .map((text) => text.replaceAll('%', '%2F'))
      .filter((text) => text !== '' && text !== '.' && text !== '..');
    const spelling = fc.constantFrom('unchanged', 'escaped', '//', '/.', '/x/..', 'lower case');
    const end = fc.constantFrom('', '?q', '#f', '?q=/a/../b#f');
    const host = fc.constantFrom('', 'http://host', 'https://u@host:1');
    fc.assert(
      fc.property(
        fc.array(fc.tuple(named, spelling), { minLength: 1, maxLength: 6 }),
        fc.boolean(),
        host,
        end,
        (segments, isFolder, host, end) => {
          const slash = isFolder ? '/' : '';
          const path = `/${segments.map(([name]) => name).join('/')}${slash}`;
          const variant = segments.map(([name, how]) => respell(name, how)).join('');
          expect(normalizePath(host + variant + slash + end)).toBe(path);
          expect(normalizePath(path)).toBe(path);
        },
      ),
      { numRuns: 2_000 },
    );
  });
});

function respell(name: string, how: string): string {
  switch (how) {
    case 'escaped':
      return `/${name.includes('%') ? name : name.replace(/[a-z0-9._~-]/gi, percentEncoded)}`;
    case '//':
      return `//${name}`;
    case '/.':
      return `/./${name}`;
    case '/x/..':
      return `/x/%2e./${name}`;
    case 'lower case':
      return `/${name.replaceAll('%2F', '%2f')}`;
    default:
      return `/${name}`;
  }
}

function percentEncoded(character: string): string {
  return `%${character.charCodeAt(0).toString(16)}`;
}
