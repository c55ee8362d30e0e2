import { describe, test } from 'vitest';
import { followExample } from './example.ts';
import { PAGE_TIMEOUT_MS } from './page-follower.ts';
import { canRunPages } from './page-runner.ts';

describe.skipIf(!canRunPages())('the example with Fastify', () => {
  test(
    'does what its README shows',
    () => followExample('fastify', { printed: ['weir.mjs'] }),
    PAGE_TIMEOUT_MS,
  );
});
