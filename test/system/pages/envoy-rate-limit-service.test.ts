/** Follows the page about the rate limit service as a reader does, with a real Envoy. */

import { describe, test } from 'vitest';
import { installEnvoy } from '../gateways/real-gateways.ts';
import { followPage, PAGE_TIMEOUT_MS, usePrograms } from './page-follower.ts';
import { canRunPages } from './page-runner.ts';

const envoy = await installEnvoy();

describe.skipIf(envoy === undefined || !canRunPages())('a reader can follow', () => {
  usePrograms({ envoy });

  test(
    'docs/envoy-rate-limit-service.md, and sees what it shows',
    () => followPage('docs/envoy-rate-limit-service.md'),
    PAGE_TIMEOUT_MS,
  );
});
