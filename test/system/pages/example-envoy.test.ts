import { symlinkSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, describe, test, vi } from 'vitest';
import { removeDirectory, temporaryDirectory } from '../../support/server.ts';
import { installEnvoy } from '../gateways/real-gateways.ts';
import { followExample } from './example.ts';
import { PAGE_TIMEOUT_MS } from './page-follower.ts';
import { canRunPages } from './page-runner.ts';

const envoy = await installEnvoy();

describe.skipIf(!canRunPages() || envoy === undefined)('the example with Envoy', () => {
  // The reader has it in the path. The path of a page excludes node_modules.
  const bin = temporaryDirectory();
  afterAll(() => {
    vi.unstubAllEnvs();
    removeDirectory(bin);
  });

  test(
    'does what its README shows',
    () => {
      symlinkSync(envoy!, join(bin, 'envoy'));
      vi.stubEnv('PATH', `${bin}:${process.env.PATH}`);
      return followExample('envoy', { printed: ['envoy.yaml'] });
    },
    PAGE_TIMEOUT_MS,
  );
});
