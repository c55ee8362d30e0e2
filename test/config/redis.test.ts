import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, describe, expect, test } from 'vitest';
import { loadSettings } from '../../src/config/load.ts';
import { CERTIFICATE_A, CERTIFICATE_B, ENCRYPTED_KEY } from '../support/certificates.ts';
import { removeDirectory, temporaryDirectory } from '../support/server.ts';

const directory = temporaryDirectory();
afterAll(() => removeDirectory(directory));
let serial = 0;
const file = (content: string) => {
  const path = join(directory, `file-${serial++}`);
  writeFileSync(path, content);
  return path;
};

const PLAIN = { WEIR_ENGINE: 'redis', WEIR_REDIS_URL: 'redis://redis.example' };
const TLS = { WEIR_ENGINE: 'redis', WEIR_REDIS_URL: 'rediss://redis.example' };

describe('the settings of the engine in Redis', () => {
  test('are absent for the memory engine, which is the default', () => {
    expect(loadSettings([], {})).toMatchObject({ engine: 'memory', redis: undefined });
  });

  test('have the documented defaults', () => {
    expect(loadSettings([], PLAIN)?.redis).toEqual({
      redisUrl: 'redis://redis.example',
      password: undefined,
      tls: { ca: undefined, cert: undefined, key: undefined },
      redisTimeoutMs: 200,
      redisPrefix: 'weir',
      leases: 'on',
      syncMs: 100,
      onEngineDown: 'local',
      localShare: 'whole',
      recovery: 'available',
      redisEviction: 'refuse',
      redisWait: 0,
    });
  });

  test('come from variables, flags and the files that they name', () => {
    const settings = {
      engine: 'redis',
      redisUrl: 'rediss://redis.example',
      redisPrefix: 'limits:v1',
    };
    const files = {
      redisPasswordFile: file('pass word\n'),
      redisCa: file(CERTIFICATE_B.cert),
      redisCert: file(CERTIFICATE_A.cert),
      redisKey: file(CERTIFICATE_A.key),
    };
    const args = [
      `--config=${file(JSON.stringify(settings))}`,
      ...['--redis-password-file', files.redisPasswordFile, '--redis-ca', files.redisCa],
      ...['--redis-cert', files.redisCert, '--redis-key', files.redisKey],
      ...['--leases', 'off', '--local-share', 'divided', '--recovery', 'available'],
    ];
    const env = { WEIR_SYNC_MS: '10', WEIR_ON_ENGINE_DOWN: 'deny', WEIR_REDIS_WAIT: '1' };
    Object.assign(env, { WEIR_REDIS_TIMEOUT_MS: '50', WEIR_REDIS_EVICTION: 'accept' });
    expect(loadSettings(args, env)?.redis).toEqual({
      ...files,
      redisUrl: 'rediss://redis.example',
      password: 'pass word',
      tls: { ca: CERTIFICATE_B.cert, cert: CERTIFICATE_A.cert, key: CERTIFICATE_A.key },
      redisTimeoutMs: 50,
      redisPrefix: 'limits:v1',
      leases: 'off',
      syncMs: 10,
      onEngineDown: 'deny',
      localShare: 'divided',
      recovery: 'available',
      redisEviction: 'accept',
      redisWait: 1,
    });
  });

  const [cert, otherKey] = [file(CERTIFICATE_A.cert), file(CERTIFICATE_B.key)];
  const passwordFile = (text: string) => ({ ...PLAIN, WEIR_REDIS_PASSWORD_FILE: file(text) });
  const certificate = (key: string) => ({ ...TLS, WEIR_REDIS_CERT: cert, WEIR_REDIS_KEY: key });
  test.each<[env: Record<string, string>, message: string]>([
    [{ WEIR_ENGINE: 'redis' }, 'WEIR_ENGINE=redis requires WEIR_REDIS_URL, which is not set'],
    [{ WEIR_REDIS_URL: 'redis://a' }, 'WEIR_REDIS_URL requires WEIR_ENGINE=redis, which is not'],
    [
      { WEIR_ENGINE: 'memory', WEIR_SYNC_MS: '100' },
      'WEIR_SYNC_MS requires WEIR_ENGINE=redis, which is not set',
    ],
    [
      { ...PLAIN, WEIR_SYNC_MS: '9' },
      'an integer from 10 to 10000, or a duration such as 500ms or 5s; got 9',
    ],
    [{ ...PLAIN, WEIR_REDIS_PREFIX: '{a}' }, 'characters of . _ : -; got "{a}"'],
    [
      { ...passwordFile('secret'), WEIR_REDIS_URL: 'redis://:secret@a' },
      'WEIR_REDIS_URL contains a password, and WEIR_REDIS_PASSWORD_FILE is set: leave one out',
    ],
    [
      { ...PLAIN, WEIR_REDIS_URL: 'redis://me@a' },
      'WEIR_REDIS_URL names a user without a password: add it, or set WEIR_REDIS_PASSWORD_FILE',
    ],
    [passwordFile('\n'), 'must be one line of 1 to 512 characters; got nothing'],
    [passwordFile('secret\nsecret\n'), '1 to 512 characters; got a text of 13 characters'],
    [{ ...TLS, WEIR_REDIS_CA: '/nowhere' }, '/nowhere (WEIR_REDIS_CA) cannot be read: '],
    [{ ...PLAIN, WEIR_REDIS_CA: cert }, 'WEIR_REDIS_CA requires a WEIR_REDIS_URL with TLS, as in'],
    [{ ...TLS, WEIR_REDIS_CA: file('secret') }, 'cannot be used: it is not PEM'],
    [
      { ...TLS, WEIR_REDIS_CERT: cert },
      'WEIR_REDIS_CERT requires WEIR_REDIS_KEY, which is not set',
    ],
    [certificate(otherKey), '(WEIR_REDIS_KEY) cannot be used: '],
    [certificate(file(ENCRYPTED_KEY)), '(WEIR_REDIS_KEY) cannot be used: '],
  ])('reject %j', (env, message) => {
    expect(() => loadSettings([], env)).toThrow(message);
    expect(() => loadSettings([], env)).not.toThrow('secret');
  });

  test('reject an invalid URL with its first fault, and without its text', () => {
    for (const [url, fault] of [
      ['http://:secret@a', 'got a text of 16 characters'],
      ['redis://:secret@a:x', 'got one with a port that is no integer from 1 to 65535'],
      ['redis://:se@cret@a', 'got one with "@" in the user or the password: write it as %40'],
      ['redis://:secret@a/secret', 'got one with a database that is no integer from 0 to 65535'],
    ]) {
      const load = () => loadSettings([], { ...PLAIN, WEIR_REDIS_URL: url });
      expect(load).toThrow(`WEIR_REDIS_URL must be redis://`);
      expect(load).toThrow(fault);
      expect(load).not.toThrow('secret');
      expect(load).not.toThrow('cret@');
    }
  });

  test('give the URL no flag, because it may contain a password', () => {
    expect(() => loadSettings(['--redis-url', 'redis://:secret@a'], {})).toThrow(
      '--redis-url is no setting of weir',
    );
    expect(() => loadSettings(['--redis-url=redis://:secret@a'], {})).not.toThrow('secret');
  });

  test('reject shard workers that decide checks, since they decide those that need Redis', () => {
    expect(() => loadSettings(['--decide', 'worker'], PLAIN)).toThrow(
      'WEIR_DECIDE is worker, which requires WEIR_ENGINE=memory',
    );
    expect(loadSettings(['--decide', 'in-place'], PLAIN)?.decide).toBe('in-place');
  });

  test('reject a wait for lost leases, since leases are in Redis', () => {
    expect(() => loadSettings(['--on-lost-leases', 'wait'], PLAIN)).toThrow(
      'WEIR_ON_LOST_LEASES is wait, which requires WEIR_ENGINE=memory',
    );
  });
});
