/** The examples whose only test is that they do what their README shows. */

import { symlinkSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, describe, test, vi } from 'vitest';
import { isMissing } from '../../support/programs/program.ts';
import { removeDirectory, temporaryDirectory } from '../../support/server.ts';
import { installEnvoy } from '../gateways/real-gateways.ts';
import { followExample } from './example.ts';
import { PAGE_TIMEOUT_MS } from './page-follower.ts';
import { canRunPages } from './page-runner.ts';

const envoy = await installEnvoy();

/** By the folder of the example: the files that its README prints again. */
const EXAMPLES = [
  { name: 'batch', printed: [], isSkipped: false },
  { name: 'express', printed: ['weir.mjs'], isSkipped: false },
  { name: 'fastify', printed: ['weir.mjs'], isSkipped: false },
  { name: 'nginx', printed: ['nginx.conf'], isSkipped: isMissing('nginx', '-v') },
  { name: 'envoy', printed: ['envoy.yaml'], isSkipped: envoy === undefined },
];

describe.skipIf(!canRunPages())('the README of the example', () => {
  // The reader has Envoy in the path. The path of a page excludes node_modules.
  const bin = temporaryDirectory();
  if (envoy !== undefined) symlinkSync(envoy, join(bin, 'envoy'));
  vi.stubEnv('PATH', `${bin}:${process.env.PATH}`);
  afterAll(() => {
    vi.unstubAllEnvs();
    removeDirectory(bin);
  });

  for (const { name, printed, isSkipped } of EXAMPLES) {
    test.skipIf(isSkipped)(
      `${name} shows what happens`,
      () => followExample(name, { printed }),
      PAGE_TIMEOUT_MS,
    );
  }
});
