import { describe, test } from 'vitest';
import { followExample } from '../support/example.ts';
import { isMissing } from '../support/gateway-process.ts';
import { PAGE_TIMEOUT_MS } from '../support/page-follower.ts';
import { canRunPages } from '../support/page-runner.ts';

describe.skipIf(!canRunPages() || isMissing('nginx', '-v'))('the example with nginx', () => {
  test(
    'does what its README shows',
    () => followExample('nginx', { printed: ['nginx.conf'] }),
    PAGE_TIMEOUT_MS,
  );
});
