import { describe, test } from 'vitest';
import { followExample } from '../support/example.ts';
import { PAGE_TIMEOUT_MS } from '../support/page-follower.ts';
import { canRunPages } from '../support/page-runner.ts';
import { isRedisMissing } from '../support/redis.ts';

describe.skipIf(!canRunPages() || isRedisMissing)('the example of a cluster', () => {
  test('does what its README shows', () => followExample('cluster'), PAGE_TIMEOUT_MS);
});
