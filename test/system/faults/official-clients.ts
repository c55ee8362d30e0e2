/** The unmodified official clients, with their own retries, behind one interface. */

import { Unkey } from '@unkey/api';
import { Ratelimit } from '@unkey/ratelimit';
import { Unkey as UnkeyV2 } from 'unkey-api-v2';
import { Ratelimit as RatelimitV2 } from 'unkey-ratelimit-v2';
import { afterEach, beforeEach, vi } from 'vitest';
import { ROOT_KEY } from '../../support/server.ts';

/** No test reaches it. A denial therefore does not come from weir. */
const LIMIT = 1_000_000_000;
const DURATION_MS = 2_592_000_000;
const NAMESPACE = 'official';

/** Retries 5 times, after 10, 27, 74, 201 and 546 ms. */
const V1_RETRY_MS = 850;
/** Retries at least once a second, for 10 s. `Ratelimit` waits for 5 s of them. */
const V2_RETRY_MS = 3_500;

interface OfficialClient {
  name: string;
  /** How long it retries at least without a response. */
  retryMs: number;
  /** Rejects if the caller would see an error, or a denial that does not come from weir. */
  check: (identifier: string) => Promise<void>;
}

interface ClientDecision {
  success: boolean;
  limit: number;
}

function expectAllowed(decision: ClientDecision | undefined, error: unknown): void {
  if (decision?.success && decision.limit === LIMIT) return;
  throw new Error(`not allowed: ${JSON.stringify(decision)} ${JSON.stringify(error)}`);
}

export function officialClients(baseUrl: string): OfficialClient[] {
  const rootKey = ROOT_KEY;
  const parameters = { limit: LIMIT, duration: DURATION_MS };
  const config = { rootKey, baseUrl, namespace: NAMESPACE, ...parameters };
  const apiV1 = new Unkey({ rootKey, baseUrl });
  const ratelimitV1 = new Ratelimit(config);
  const apiV2 = new UnkeyV2({ serverURL: baseUrl, rootKey });
  const ratelimitV2 = new RatelimitV2(config);
  return [
    {
      name: '@unkey/api 0.38.0',
      retryMs: V1_RETRY_MS,
      check: async (identifier) => {
        const request = { namespace: NAMESPACE, identifier, ...parameters };
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
        const request = { namespace: NAMESPACE, identifier, ...parameters };
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
 * Counts retries of the v1 clients, which log each retry with console.debug. Call it where tests
 * are described.
 * @returns a function that returns the retries so far in the running test
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
