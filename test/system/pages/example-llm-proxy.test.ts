/** The proxy for a language model, with a real weir and the upstream of the example. */

import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { LONGEST_WINDOW_MS } from '../../support/http.ts';
import { freePort, ROOT_KEY, waitUntil } from '../../support/server.ts';
import { useServer } from '../../support/test-server.ts';
import { type Gateway, startGateway } from '../gateways/gateway-process.ts';
import { followPage, PAGE_TIMEOUT_MS } from './page-follower.ts';
import { canRunPages } from './page-runner.ts';

const FOLDER = new URL('../../../examples/llm-proxy/', import.meta.url).pathname;
const LIMIT = 1_000;
/** 12 tokens of the model, and by the estimate of the proxy 4 for the message and 6 for the text. */
const PROMPT = 'a b c d e f g h i j k l';
const PROMPT_TOKENS = 12;
const ESTIMATE = 10;
const ANSWER_LENGTH = 80;

async function start(file: string, env: Record<string, string>): Promise<Gateway> {
  const port = await freePort();
  const command = () => [process.execPath, `${FOLDER}${file}`];
  const all = { ...env, PORT: `${port}` };
  return startGateway({ configuration: '', fileName: 'none', port, command, env: all });
}

describe('the proxy of the example', () => {
  const weir = useServer();
  let upstream: Gateway;
  let proxy: Gateway;
  beforeAll(async () => {
    upstream = await start('upstream.mjs', {});
    proxy = await start('proxy.mjs', {
      ...{ WEIR_URL: weir.url, WEIR_KEY: ROOT_KEY, WINDOW_MS: `${LONGEST_WINDOW_MS}` },
      UPSTREAM_URL: `http://127.0.0.1:${upstream.port}`,
    });
  });
  afterAll(async () => {
    await proxy.stop();
    await upstream.stop();
  });

  const ask = (client: string, fields: object, signal?: AbortSignal) => {
    return fetch(`http://127.0.0.1:${proxy.port}/v1/chat/completions`, {
      method: 'POST',
      headers: { Authorization: `Bearer key-of-${client}` },
      body: JSON.stringify({ messages: [{ role: 'user', content: PROMPT }], ...fields }),
      ...(signal === undefined ? {} : { signal }),
    });
  };
  /** Tokens that count for an organization. */
  const usedBy = async (identifier: string) => {
    const window = { namespace: 'llm', limit: 10 * LIMIT, duration: LONGEST_WINDOW_MS };
    const { remaining } = await weir.ok('ratelimits.limit', { ...window, identifier, cost: 0 });
    return 10 * LIMIT - Number(remaining);
  };
  const billOf = async () => {
    const response = await fetch(`http://127.0.0.1:${upstream.port}/bill`);
    return (await response.json()) as { calls: number; total_tokens: number };
  };

  test.skipIf(!canRunPages())(
    'does what its README shows',
    () => followPage('examples/llm-proxy/README.md'),
    PAGE_TIMEOUT_MS,
  );

  test('exceeds the limit by the missed tokens of prompts at most, with fifty callers', async () => {
    const statuses: number[] = [];
    let most = 0;
    const caller = async (_: unknown, i: number) => {
      for (let call = 0; call < 4; call++) {
        const stream = i % 2 === 0;
        const fields = { model: i % 3 === 0 ? 'slow' : 'echo', max_tokens: 100, stream };
        const response = await ask('acme', fields);
        const body = await response.text();
        statuses.push(response.status);
        most = Math.max(most, (await billOf()).total_tokens);
        if (response.status === 429) {
          expect(Number(response.headers.get('Retry-After'))).toBeGreaterThan(0);
          expect(JSON.parse(body).error.code).toBe('rate_limit_exceeded');
        } else {
          expect(response.status).toBe(200);
          expect(body).toContain(stream ? 'data: [DONE]' : '"total_tokens":92');
          // Nobody has asked for the usage in the stream.
          if (stream) expect(body).not.toContain('"usage"');
        }
      }
    };
    await Promise.all(Array.from({ length: 50 }, caller));
    const { calls, total_tokens: total } = await billOf();
    expect(statuses.filter((status) => status === 200)).toHaveLength(calls);
    expect(statuses).toContain(429);
    expect(calls).toBeGreaterThan(LIMIT / (100 + ESTIMATE) - 1);
    expect(most).toBe(total);
    expect(total).toBeLessThanOrEqual(LIMIT + calls * (PROMPT_TOKENS - ESTIMATE));
    await waitUntil('all calls are committed', async () => (await usedBy('acme')) === total);
  });

  test('commits what a call has used', async () => {
    const isUsed = (tokens: number, description: string) => {
      return waitUntil(description, async () => (await usedBy('globex')) === tokens);
    };
    let used = PROMPT_TOKENS + 5;
    expect((await ask('globex', { model: 'echo', max_tokens: 5 })).status).toBe(200);
    await isUsed(used, 'an answer is committed');

    expect((await ask('globex', { model: 'down', max_tokens: 500 })).status).toBe(500);
    await isUsed(used, 'an error returns all tokens');

    const options = { stream: true, stream_options: { include_usage: true } };
    const whole = await ask('globex', { model: 'echo', max_tokens: 3, ...options });
    expect(await whole.text()).toContain('"total_tokens":15');
    used += PROMPT_TOKENS + 3;
    await isUsed(used, 'a stream is committed');

    const broken = await ask('globex', { model: 'broken', max_tokens: 500, stream: true });
    await expect(broken.text()).rejects.toThrow();
    // Ten words of one letter and a blank.
    used += ESTIMATE + 5;
    await isUsed(used, 'the words before the failure are committed');

    const client = new AbortController();
    const slow = { model: 'slow', max_tokens: ANSWER_LENGTH, stream: true };
    const gone = await ask('globex', slow, client.signal);
    await gone.body!.getReader().read();
    client.abort();
    let after = 0;
    await waitUntil('the words before the client went away are committed', async () => {
      after = await usedBy('globex');
      return after < used + ESTIMATE + ANSWER_LENGTH;
    });
    expect(after).toBeGreaterThan(used + ESTIMATE);

    const unknown = new AbortController();
    const early = ask('globex', { model: 'slow', max_tokens: 50 }, unknown.signal);
    await isUsed(after + ESTIMATE + 50, 'it is reserved');
    unknown.abort();
    await expect(early).rejects.toThrow();
    await isUsed(after + ESTIMATE + 50, 'the reserved tokens are committed');
  });

  test.each([
    [401, 'key-of-nobody', { model: 'echo' }],
    [400, 'key-of-acme', { model: 'echo', max_tokens: 0 }],
    [400, 'key-of-acme', { model: 'echo', n: 1.5 }],
    [400, 'key-of-acme', { model: 'echo', n: -1, max_tokens: -1 }],
    [429, 'key-of-acme', { model: 'echo', max_tokens: 1, max_completion_tokens: LIMIT }],
  ])('answers %i, to %s with %j', async (status, key, fields) => {
    const response = await ask(key.replace('key-of-', ''), fields);
    expect([response.status, response.headers.get('Retry-After')]).toEqual([status, null]);
  });
});
