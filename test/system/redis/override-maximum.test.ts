/** The maximum of overrides with text between wildcards, on servers that share a Redis. */

import { describe, expect, test } from 'vitest';
import { INFIX_OVERRIDES_MAX } from '../../../src/core/constants.ts';
import { LONGEST_WINDOW_MS } from '../../support/http.ts';
import { callOperation, callOperationOk } from '../../support/operations.ts';
import { isRedisMissing } from '../../support/programs/redis.ts';
import { ROOT_KEY } from '../../support/server.ts';
import { useServers } from './servers.ts';
import { useRedis } from './use-redis.ts';

describe.skipIf(isRedisMissing)('servers with one Redis', () => {
  const redis = useRedis();
  const { servers, start } = useServers(2);
  const VALUES = { namespaceName: 'shared', limit: 5, duration: LONGEST_WINDOW_MS };
  const FREE = 3;

  test('have one maximum together, also for overrides that are set on both at once', async () => {
    await Promise.all([0, 1].map((i) => start(i, redis.url, { WEIR_ROOT_KEY: ROOT_KEY })));
    const [a, b] = servers.map(({ port }) => port);
    const overrides = Array.from({ length: INFIX_OVERRIDES_MAX - FREE }, (_, i) => {
      return { ...VALUES, identifier: `*stored*${i}` };
    });
    await callOperationOk(a, 'ratelimits.importOverrides', { overrides });
    const responses = await Promise.all(
      Array.from({ length: 2 * FREE }, (_, i) => {
        const override = { ...VALUES, identifier: `*at once*${i}` };
        return callOperation(i % 2 === 0 ? a : b, 'ratelimits.setOverride', override);
      }),
    );
    const statuses = responses.map(({ status }) => status);
    expect(statuses.filter((status) => status === 200)).toHaveLength(FREE);
    for (const { status, body } of responses) {
      if (status === 200) continue;
      expect(status).toBe(400);
      expect(JSON.stringify(body)).toContain(`has the maximum of ${INFIX_OVERRIDES_MAX} overrides`);
    }
    for (const port of [a, b]) {
      const { overrides: stored } = await callOperationOk(port, 'ratelimits.exportOverrides');
      expect(stored).toHaveLength(INFIX_OVERRIDES_MAX);
    }
  });
});
