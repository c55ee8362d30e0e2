/** The example with `@unkey/ratelimit` 2.1.4, and what its README says about the client. */

import { Ratelimit, type RatelimitConfig } from 'unkey-ratelimit-v2';
import { describe, expect, test } from 'vitest';
import { useDataDirectory } from '../../support/data-directory.ts';
import { ROOT_KEY } from '../../support/server.ts';
import { startRecordingProxy } from '../gateways/gateway-process.ts';
import { followExample, linkPackage } from './example.ts';
import { PAGE_TIMEOUT_MS } from './page-follower.ts';
import { canRunPages } from './page-runner.ts';

const FALLBACK = { success: true, limit: 0, remaining: 0, reset: 0 };

describe('@unkey/ratelimit', () => {
  const own = useDataDirectory(['--counters', '1024']);
  const limiter = (baseUrl: string, more: Partial<RatelimitConfig> = {}) => {
    const limit = { namespace: 'reports', limit: 1, duration: '30d' } as const;
    return new Ratelimit({ baseUrl, rootKey: ROOT_KEY, ...limit, ...more });
  };

  test.skipIf(!canRunPages())(
    'does in the example what its README shows',
    () => {
      const prepare = (folder: string) => {
        linkPackage(folder, '@unkey/ratelimit', 'unkey-ratelimit-v2');
      };
      return followExample('unkey-client', { prepare });
    },
    PAGE_TIMEOUT_MS,
  );

  test('decides by itself if weir is stopped: by its fallback, or a denial after 5 s', async () => {
    const weir = await own.start();
    await weir.stop();
    const decide = (more?: Partial<RatelimitConfig>) => limiter(weir.url, more).limit('alice');
    const timeout = { ms: 1_000, fallback: FALLBACK };
    const [denied, allowed] = await Promise.all([decide(), decide({ timeout })]);
    expect(denied).toMatchObject({ success: false, limit: 0 });
    expect(allowed).toEqual(FALLBACK);
  });

  test('throws if weir rejects the check, unless onError decides', async () => {
    const { url } = await own.start();
    const wrong = { rootKey: 'not-a-key', timeout: { ms: 30_000, fallback: FALLBACK } };
    await expect(limiter(url, wrong).limit('alice')).rejects.toThrow('API key');
    const decision = { ...FALLBACK, remaining: 1 };
    const onError = () => decision;
    expect(await limiter(url, { ...wrong, onError }).limit('alice')).toEqual(decision);
  });

  test('repeats a denial from its memory, without a check', async () => {
    const weir = await own.start();
    const proxy = await startRecordingProxy(weir.port);
    const client = limiter(`http://127.0.0.1:${proxy.port}`);
    const decisions: boolean[] = [];
    for (let i = 0; i < 4; i++) decisions.push((await client.limit('alice')).success);
    await proxy.stop();
    expect(decisions).toEqual([true, false, false, false]);
    expect(proxy.bytesToWeir().match(/POST \/v2\//g)).toHaveLength(2);
  });
});
