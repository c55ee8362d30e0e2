import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { describeTarget, parseRedisUrl, RedisUrlError } from '../../src/redis/url.ts';

const STANDALONE = {
  kind: 'standalone',
  addresses: [{ host: 'a', port: 6_379 }],
  usesTls: false,
  username: undefined,
  password: undefined,
  database: 0,
  primaryName: '',
};

describe('the URL', () => {
  test.each([
    ['redis://a', {}],
    ['REDIS://a', {}],
    ['redis://a/', {}],
    ['rediss://a', { usesTls: true }],
    ['redis://a:1/7', { addresses: [{ host: 'a', port: 1 }], database: 7 }],
    ['redis://:pw@a', { password: 'pw' }],
    ['redis://me@a', { username: 'me' }],
    ['redis://me:p%40w%3A%2F%23:x@a', { username: 'me', password: 'p@w:/#:x' }],
    ['redis://[::1]:2', { addresses: [{ host: '::1', port: 2 }] }],
    ['redis://127.0.0.1', { addresses: [{ host: '127.0.0.1', port: 6_379 }] }],
    [
      'rediss+sentinel://me:pw@a,b:5,[::1]/my-primary_1.x?db=2',
      {
        kind: 'sentinel',
        addresses: [
          { host: 'a', port: 26_379 },
          { host: 'b', port: 5 },
          { host: '::1', port: 26_379 },
        ],
        usesTls: true,
        username: 'me',
        password: 'pw',
        database: 2,
        primaryName: 'my-primary_1.x',
      },
    ],
    [
      'redis+cluster://a,b:5/',
      {
        kind: 'cluster',
        addresses: [
          { host: 'a', port: 6_379 },
          { host: 'b', port: 5 },
        ],
      },
    ],
  ])('%s is accepted', (url, parts) => {
    expect(parseRedisUrl(url)).toEqual({ ...STANDALONE, ...parts });
  });

  test.each([
    ['', 'one of another form'],
    ['a:6379', 'one of another form'],
    ['http://a', 'one of another form'],
    ['redis+proxy://a', 'one of another form'],
    ['redis:a', 'one of another form'],
    ['redis://a#b', 'one of another form'],
    ['redis://', 'one without a host'],
    ['redis://:1', 'one without a host'],
    ['redis+cluster://a,,b', 'one without a host'],
    ['redis://::1', 'one with an invalid host; IPv6 addresses need brackets'],
    ['redis://[::x]', 'one with an invalid host; IPv6 addresses need brackets'],
    ['redis://a b', 'one with an invalid host'],
    ['redis://a:', 'one with a port that is no integer from 1 to 65535'],
    ['redis://a:0', 'one with a port that is no integer from 1 to 65535'],
    ['redis://a:65536', 'one with a port that is no integer from 1 to 65535'],
    ['redis://p@w@a', 'one with "@" in the user or the password: write it as %40'],
    ['redis://:100%@a', 'one with "%" in front of something else than two hexadecimal digits'],
    ['redis://a,b', 'one with several hosts, but without "+sentinel" or "+cluster"'],
    [`redis+cluster://${Array(65).fill('a')}`, 'one with more than 64 hosts'],
    ['redis://a/x', 'one with a database that is no integer from 0 to 65535'],
    ['redis://a/-1', 'one with a database that is no integer from 0 to 65535'],
    ['redis://a/99999', 'one with a database that is no integer from 0 to 65535'],
    ['redis://a?db=1', 'one with a query'],
    ['redis+cluster://a/1', 'one of a cluster with a database: clusters have none'],
    ['redis+sentinel://a', 'one of Sentinels without /<primary>'],
    ['redis+sentinel://a/b/c', 'one with a name of the primary that no Sentinel accepts'],
    ['redis+sentinel://a/b?x=1', 'one with another query than ?db=<number>'],
    ['redis+sentinel://a/b?db=x', 'one with a database that is no integer from 0 to 65535'],
  ])('%s is rejected with its fault', (url, fault) => {
    expect(() => parseRedisUrl(url)).toThrow(RedisUrlError);
    expect(() => parseRedisUrl(url)).toThrow(fault);
  });

  test('never appears in an error, whatever it is', () => {
    const piece = fc.oneof(
      fc.constantFrom(
        'redis',
        's',
        '+cluster',
        '+sentinel',
        '://',
        ':',
        '@',
        ',',
        '/',
        '?db=',
        '#',
      ),
      fc.constantFrom('[', ']', '::1', '%', '%41', '6379', 'secret', 'a'),
      fc.string({ maxLength: 8 }),
    );
    fc.assert(
      fc.property(fc.array(piece, { maxLength: 12 }), (pieces) => {
        const url = pieces.join('');
        try {
          parseRedisUrl(url);
        } catch (error) {
          expect(error).toBeInstanceOf(RedisUrlError);
          expect(String(error)).not.toContain('secret');
        }
      }),
      { numRuns: 5_000 },
    );
  });

  test('is described for logs without user and password', () => {
    for (const [url, text] of [
      ['redis://me:secret@a/7', 'redis://a:6379/7'],
      ['rediss+sentinel://me:secret@a,[::1]:1/b?db=2', 'rediss+sentinel://a:26379,[::1]:1/b?db=2'],
      ['redis+cluster://me:secret@a,b', 'redis+cluster://a:6379,b:6379'],
    ]) {
      expect(describeTarget(parseRedisUrl(url))).toBe(text);
    }
  });
});
