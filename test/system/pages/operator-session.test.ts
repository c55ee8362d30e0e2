/** The session of a new operator, command by command, with the package as npm installs it. */

import { execFileSync, spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { isRegistryReachable } from '../../support/programs/npm.ts';
import { isMissing } from '../../support/programs/program.ts';
import {
  cleanEnvironment,
  freePort,
  removeDirectory,
  temporaryDirectory,
} from '../../support/server.ts';

const ROOT = new URL('../../..', import.meta.url).pathname;
const SCRIPT = new URL('./operator-session.sh', import.meta.url).pathname;
/** It takes 10 s on a quiet machine, and longer if packages must be downloaded. */
const SESSION_MS = 400_000;

const isLacking =
  isMissing('nginx', '-v') || isMissing('curl', '--version') || !isRegistryReachable();

test.skipIf(isLacking)(
  'a new operator can install, protect nginx, recover from ten invalid configurations, rotate a key and restart',
  async () => {
    const directory = temporaryDirectory();
    const packed = temporaryDirectory();
    const env = cleanEnvironment() as NodeJS.ProcessEnv;
    try {
      // Without scripts: a new build would remove files that other tests use at the same time.
      const pack = ['pack', '--silent', '--ignore-scripts', '--pack-destination', packed];
      const name = execFileSync('npm', pack, { cwd: ROOT, env, encoding: 'utf8' }).trim();
      const ports: string[] = [];
      for (let i = 0; i < 5; i++) ports.push(String(await freePort()));
      const { status, stdout, stderr } = spawnSync('bash', [SCRIPT, join(packed, name), ...ports], {
        cwd: directory,
        env,
        encoding: 'utf8',
        timeout: SESSION_MS - 10_000,
      });
      expect(`${stdout.split('\n').slice(-8).join('\n')}${stderr}`).toContain(
        'the session succeeded',
      );
      expect([status, stdout.match(/^== /gm)?.length]).toEqual([0, 10]);
    } finally {
      removeDirectory(directory);
      removeDirectory(packed);
    }
  },
  SESSION_MS,
);
