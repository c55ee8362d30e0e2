import { describe, test } from 'vitest';
import { followExample } from '../support/example.ts';
import { PAGE_TIMEOUT_MS } from '../support/page-follower.ts';
import { canRunPages } from '../support/page-runner.ts';

describe.skipIf(!canRunPages())('the example with Express', () => {
  test(
    'does what its README shows',
    () => followExample('express', { printed: ['weir.mjs'] }),
    PAGE_TIMEOUT_MS,
  );
});
