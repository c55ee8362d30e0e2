import { describe, test } from 'vitest';
import { isRedisMissing } from '../../support/programs/redis.ts';
import { followPage, PAGE_TIMEOUT_MS } from './page-follower.ts';
import { canRunPages } from './page-runner.ts';

describe.skipIf(!canRunPages() || isRedisMissing)('the example of a cluster', () => {
  test(
    'does what its README shows',
    () => followPage('examples/cluster/README.md'),
    PAGE_TIMEOUT_MS,
  );
});
