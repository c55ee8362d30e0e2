import { describe, test } from 'vitest';
import { isMissing } from '../../support/programs/program.ts';
import { followExample } from './example.ts';
import { PAGE_TIMEOUT_MS } from './page-follower.ts';
import { canRunPages } from './page-runner.ts';

describe.skipIf(!canRunPages() || isMissing('nginx', '-v'))('the example with nginx', () => {
  test(
    'does what its README shows',
    () => followExample('nginx', { printed: ['nginx.conf'] }),
    PAGE_TIMEOUT_MS,
  );
});
