/** Independent clients of gRPC get the same answers of the rate limit service. */

import { execFileSync, spawnSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { isMissing } from '../../support/programs/program.ts';
import { pythonEnvironment } from '../../support/programs/python-environment.ts';
import { requestOf } from '../../support/rls/client.ts';
import { SHOULD_RATE_LIMIT } from '../../support/rls/definitions.ts';
import { useRlsServer } from '../../support/rls/rls-server.ts';

const python = await pythonEnvironment('grpcio', ['grpcio-tools==1.76.0']);
const PROTO = join(import.meta.dirname, '../../support/rls/rls.proto');
const CALLS = 200;

const server = useRlsServer({
  files: {
    'd.yaml': `
domain: d
descriptors:
  - { key: k, rate_limit: { unit: year, requests_per_unit: 10000 } }
`,
  },
});
const used = async (value: string) => {
  const [, text] = await server.rls.ask('d', [{ of: `k=${value}`, hits: 0 }]);
  return 10_000 - Number(/^OK (\d+)\//.exec(text)?.[1]);
};

describe('a client', () => {
  test('of grpc-js is answered for each of its calls', async () => {
    const calls = Array.from({ length: CALLS }, () => server.rls.ask('d', ['k=js']));
    const remaining = (await Promise.all(calls)).map(([, text]) => text);
    expect(new Set(remaining).size).toBe(CALLS);
    expect(await used('js')).toBe(CALLS);
  });

  test.skipIf(python === undefined)('of grpcio is answered for each of its calls', async () => {
    const script = join(import.meta.dirname, 'rls_client.py');
    const target = `127.0.0.1:${server.rlsPort}`;
    const args = [script, PROTO, target, String(CALLS)];
    const text = execFileSync(join(python!.bin, 'python3'), args, { encoding: 'utf8' });
    const { remaining, limit, error } = JSON.parse(text);
    expect(remaining).toEqual(Array.from({ length: CALLS }, (_, n) => 9_999 - n));
    expect(limit).toEqual([10_000, 6]);
    expect(error).toEqual(['INVALID_ARGUMENT', 'rate limit domain must not be empty']);
    expect(await used('python')).toBe(CALLS);
  });

  test.skipIf(isMissing('h2load', '--version'))('h2load has no failed request', async () => {
    const message = SHOULD_RATE_LIMIT.requestSerialize(requestOf('d', ['k=h2load']));
    const prefix = Buffer.alloc(5);
    prefix.writeUInt32BE(message.length, 1);
    const path = join(server.directory, 'body.bin');
    writeFileSync(path, Buffer.concat([prefix, message]));
    const headers = ['-H', 'content-type: application/grpc', '-H', 'te: trailers'];
    const url = `http://127.0.0.1:${server.rlsPort}${SHOULD_RATE_LIMIT.path}`;
    const load = ['-c4', '-m16', '-n', String(CALLS), '-d', path, ...headers, url];
    const { stdout } = spawnSync('h2load', load, { encoding: 'utf8' });
    expect(stdout).toContain(`${CALLS} succeeded, 0 failed, 0 errored, 0 timeout`);
    expect(await used('h2load')).toBe(CALLS);
  });

  // It is in no registry of packages, so CI does not have it.
  const isGhzMissing = spawnSync('ghz', ['--version']).error !== undefined;
  test.skipIf(isGhzMissing)('ghz is answered with OK for each of its calls', async () => {
    const entries = [{ key: 'k', value: 'ghz' }];
    const data = JSON.stringify({ domain: 'd', descriptors: [{ entries }] });
    const args = [
      '--insecure',
      '--proto',
      PROTO,
      '--call',
      'envoy.service.ratelimit.v3.' + 'RateLimitService/ShouldRateLimit',
      '-c',
      '16',
      '--connections',
      '4',
      '-n',
      String(CALLS),
      '-d',
      data,
      '-O',
      'json',
      `127.0.0.1:${server.rlsPort}`,
    ];
    const { stdout } = spawnSync('ghz', args, { encoding: 'utf8' });
    expect(JSON.parse(stdout).statusCodeDistribution).toEqual({ OK: CALLS });
    expect(await used('ghz')).toBe(CALLS);
  });
});
