/** Follows the pages about gateways as a reader does, with the real gateways. */

import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { GATEWAYS } from '../../../src/policies/gateways.ts';
import { isMissing } from '../../support/programs/program.ts';
import { installEnvoy, installTraefik } from '../gateways/real-gateways.ts';
import { followPage, PAGE_TIMEOUT_MS, usePrograms } from './page-follower.ts';
import { canRunPages } from './page-runner.ts';

const ROOT = new URL('../../..', import.meta.url).pathname;
const envoy = await installEnvoy();
const traefik = await installTraefik();

/** The gateways that are not installed. */
const MISSING: Record<string, boolean> = {
  caddy: isMissing('caddy', 'version'),
  envoy: envoy === undefined,
  haproxy: isMissing('haproxy', '-v'),
  nginx: isMissing('nginx', '-v'),
  traefik: traefik === undefined,
};

describe.skipIf(!canRunPages())('a reader can follow', () => {
  usePrograms({ envoy, traefik });

  test('a page about each gateway', () => {
    const names = readdirSync(join(ROOT, 'docs/gateways')).map((name) => name.replace('.md', ''));
    expect(names.toSorted()).toEqual([...GATEWAYS, 'README', 'contract'].toSorted());
  });

  for (const name of GATEWAYS) {
    test.skipIf(MISSING[name])(
      `docs/gateways/${name}.md, and sees what it shows`,
      () => followPage(`docs/gateways/${name}.md`),
      PAGE_TIMEOUT_MS,
    );
  }
});
