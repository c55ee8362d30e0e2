/** The examples whose only test is that they do what their README shows. */

import { describe, test } from 'vitest';
import { isMissing } from '../../support/programs/program.ts';
import { installEnvoy } from '../gateways/real-gateways.ts';
import { followPage, PAGE_TIMEOUT_MS, usePrograms } from './page-follower.ts';
import { canRunPages } from './page-runner.ts';

const envoy = await installEnvoy();

/** By the folder of the example: the files that its README prints again. */
const EXAMPLES = [
  { name: 'batch', printed: [], isSkipped: false },
  { name: 'express', printed: ['weir.mjs'], isSkipped: false },
  { name: 'fastify', printed: ['weir.mjs'], isSkipped: false },
  { name: 'nginx', printed: ['nginx.conf'], isSkipped: isMissing('nginx', '-v') },
  { name: 'envoy', printed: ['envoy.yaml'], isSkipped: envoy === undefined },
  { name: 'envoy-rls', printed: ['envoy.yaml'], isSkipped: envoy === undefined },
];

describe.skipIf(!canRunPages())('the README of the example', () => {
  usePrograms({ envoy });
  for (const { name, printed, isSkipped } of EXAMPLES) {
    test.skipIf(isSkipped)(
      `${name} shows what happens`,
      () => followPage(`examples/${name}/README.md`, { printed }),
      PAGE_TIMEOUT_MS,
    );
  }
});
