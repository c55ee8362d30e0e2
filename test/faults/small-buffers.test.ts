/** Large answers where the kernel takes little at once, as on a link that is not loopback. */

import { execFile, spawnSync } from 'node:child_process';
import { promisify } from 'node:util';
import { expect, test } from 'vitest';
import { CERTIFICATE_A, writeCertificate } from '../support/certificates.ts';
import { useDataDirectory } from '../support/data-directory.ts';
import { recordMeasurement } from '../support/guarantees.ts';
import {
  CLI_PATH,
  freePort,
  ROOT_KEY,
  removeDirectory,
  temporaryDirectory,
} from '../support/server.ts';

const own = useDataDirectory([]);
const run = promisify(execFile);

const CLIENT = new URL('../support/small-buffers.process.mjs', import.meta.url).pathname;
const WAITS_MS = [0, 0, 0, 50, 50, 200, 200, 500, 1_000];

/** Where no network of its own can be had the test is skipped, but not where nothing may be. */
const noNetwork =
  spawnSync('unshare', ['-n', 'ip', 'link', 'set', 'lo', 'up']).status !== 0 &&
  process.env.CI === undefined;

test.skipIf(noNetwork).each(['plain', 'TLS'])(
  'an answer larger than what the kernel takes at once is read whole, %s',
  async (kind) => {
    const place = temporaryDirectory();
    const { cert, key } = writeCertificate(place, CERTIFICATE_A);
    const tls = kind === 'TLS' ? ['--tls-cert', cert, '--tls-key', key] : [];
    const ports = [await freePort(), await freePort()].map(String);
    const client = [CLIENT, CLI_PATH, ...ports, own.dataDir, ROOT_KEY, WAITS_MS.join(), ...tls];
    const inNetwork = ['-n', 'sh', '-c', 'ip link set lo up && exec "$@"', 'sh'];
    const { stdout } = await run('unshare', [...inNetwork, process.execPath, ...client]);
    const { code, limits } = JSON.parse(stdout);
    removeDirectory(place);
    const whole = limits.filter((length: number) => length === 100).length;
    const asked = 2 * WAITS_MS.length;
    const tried = `${asked} of 100 checks, 300 KB each, half of them the last of a connection`;
    recordMeasurement(
      'P3',
      `large answers over small buffers, ${kind}`,
      tried,
      `${whole} read whole`,
    );
    expect([code, whole]).toEqual([0, asked]);
  },
);
