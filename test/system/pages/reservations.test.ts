/** Follows the page about reservations and leases as a reader does. */

import { describe, test } from 'vitest';
import { isMissing } from '../../support/programs/program.ts';
import { followPage, PAGE_TIMEOUT_MS } from './page-follower.ts';
import { canRunPages } from './page-runner.ts';

describe.skipIf(isMissing('jq', '--version') || !canRunPages())('a reader can follow', () => {
  test(
    'docs/reservations.md, and sees what it shows',
    () => followPage('docs/reservations.md'),
    PAGE_TIMEOUT_MS,
  );
});
