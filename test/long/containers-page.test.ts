/**
 * Follows docs/containers.md as a reader does, with podman in the place of docker. It
 * requires what the test of the image requires.
 */

import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, test } from 'vitest';
import {
  ContainerImages,
  canBuildImages,
  RUN_OPTIONS,
} from '../support/programs/container-images.ts';
import { removeDirectory, temporaryDirectory } from '../support/server.ts';
import { followPage, PAGE_TIMEOUT_MS } from '../system/pages/page-follower.ts';
import { canRunPages } from '../system/pages/page-runner.ts';

const BUILD_TIMEOUT_MS = 1_200_000;

/**
 * Without the errors of podman about timers for health checks, which systemd would have.
 *
 * @param podman the path of a program that gets the arguments of docker
 */
const dockerScript = (podman: string) => `#!/bin/bash
exec 2> >(grep -v 'systemd connection' >&2)
command=$1
shift
case $command in
  run) exec '${podman}' run ${RUN_OPTIONS.join(' ')} "$@" ;;
  *) exec '${podman}' "$command" "$@" ;;
esac
`;

describe.skipIf(!canBuildImages || !canRunPages())('a reader can follow', () => {
  const images = new ContainerImages();
  const programs = temporaryDirectory();
  const path = process.env.PATH;

  beforeAll(async () => {
    await images.build('amd64');
    images.podman('tag', 'weir-amd64', 'localhost/weir');
    const script = dockerScript(images.podmanScript());
    writeFileSync(join(programs, 'docker'), script, { mode: 0o755 });
    process.env.PATH = `${programs}:${path}`;
  }, BUILD_TIMEOUT_MS);
  afterAll(() => {
    process.env.PATH = path;
    images.remove();
    removeDirectory(programs);
  });

  test(
    'docs/containers.md, and sees what it shows',
    () => followPage('docs/containers.md', { isInstalled: true }),
    PAGE_TIMEOUT_MS,
  );
});
