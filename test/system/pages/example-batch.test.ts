import { describe, test } from 'vitest';
import { followExample } from './example.ts';
import { PAGE_TIMEOUT_MS } from './page-follower.ts';
import { canRunPages } from './page-runner.ts';

describe.skipIf(!canRunPages())('the example of a batch', () => {
  test('does what its README shows', () => followExample('batch'), PAGE_TIMEOUT_MS);
});
