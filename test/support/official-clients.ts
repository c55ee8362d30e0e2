/** The official clients, unchanged and with the retries that they bring, behind one way to call. */

import { Unkey } from '@unkey/api';
import { Ratelimit } from '@unkey/ratelimit';
import { Unkey as UnkeyV2 } from 'unkey-api-v2';
import { Ratelimit as RatelimitV2 } from 'unkey-ratelimit-v2';
import { afterEach, beforeEach, vi } from 'vitest';
import { ROOT_KEY } from './server.ts';

/** Never reached: whoever is refused was not answered by weir. */
const LIMIT = 1_000_000_000;
const DURATION_MS = 2_592_000_000;
const NAMESPACE = 'official';

/** Tries 6 times, 10, 27, 74, 201 and 546 ms after one another. */
const V1_RETRY_MS = 850;
/** Tries once a second or more often, for 10 s; `Ratelimit` waits for 5 of them. */
const V2_RETRY_MS = 3_500;

export interface OfficialClient {
  name: string;
  /** How long it goes on trying, at least, while nobody answers. */
  retryMs: number;
  /** Rejects where a caller would see an error, or a refusal that weir did not mean. */
  check: (identifier: string) => Promise<void>;
}

interface ClientDecision {
  success: boolean;
  limit: number;
}

function expectAllowed(answer: ClientDecision | undefined, why: unknown): void {
  if (answer?.success && answer.limit === LIMIT) return;
  throw new Error(`not admitted: ${JSON.stringify(answer)} ${JSON.stringify(why)}`);
}

export function officialClients(baseUrl: string): OfficialClient[] {
  const rootKey = ROOT_KEY;
  const said = { limit: LIMIT, duration: DURATION_MS };
  const config = { rootKey, baseUrl, namespace: NAMESPACE, ...said };
  const apiV1 = new Unkey({ rootKey, baseUrl });
  const ratelimitV1 = new Ratelimit(config);
  const apiV2 = new UnkeyV2({ serverURL: baseUrl, rootKey });
  const ratelimitV2 = new RatelimitV2(config);
  return [
    {
      name: '@unkey/api 0.38.0',
      retryMs: V1_RETRY_MS,
      check: async (identifier) => {
        const request = { namespace: NAMESPACE, identifier, ...said };
        const { result, error } = await apiV1.ratelimits.limit(request);
        expectAllowed(result, error);
      },
    },
    {
      name: '@unkey/ratelimit 0.5.5',
      retryMs: V1_RETRY_MS,
      check: async (identifier) => expectAllowed(await ratelimitV1.limit(identifier), ''),
    },
    {
      name: '@unkey/api 2.5.1',
      retryMs: V2_RETRY_MS,
      check: async (identifier) => {
        const request = { namespace: NAMESPACE, identifier, ...said };
        expectAllowed((await apiV2.ratelimit.limit(request)).data, '');
      },
    },
    {
      name: '@unkey/ratelimit 2.1.4',
      retryMs: V2_RETRY_MS,
      check: async (identifier) => expectAllowed(await ratelimitV2.limit(identifier), ''),
    },
  ];
}

/**
 * Clients of v1 say on the console when they try again. To be called where tests are described.
 * @returns how often they did in the test that runs
 */
export function useRetryCount(): () => number {
  let retries = 0;
  beforeEach(() => {
    retries = 0;
    vi.spyOn(console, 'debug').mockImplementation(() => {
      retries++;
    });
  });
  afterEach(() => {
    vi.restoreAllMocks();
  });
  return () => retries;
}
