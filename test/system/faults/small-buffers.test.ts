/** Large responses over small kernel buffers, as on a network other than loopback. */

import { execFile, spawnSync } from 'node:child_process';
import { promisify } from 'node:util';
import { expect, test } from 'vitest';
import { CERTIFICATE_A, writeCertificate } from '../../support/certificates.ts';
import { useDataDirectory } from '../../support/data-directory.ts';
import { IS_LONG, recordMeasurement } from '../../support/guarantees.ts';
import {
  CLI_PATH,
  freePort,
  ROOT_KEY,
  removeDirectory,
  temporaryDirectory,
} from '../../support/server.ts';

const own = useDataDirectory([]);
const run = promisify(execFile);

const CLIENT = new URL('./small-buffers.process.mjs', import.meta.url).pathname;
const WAITS_MS = IS_LONG ? [0, 0, 0, 50, 50, 200, 200, 500, 1_000] : [0, 0, 50, 200];

/** Skipped where no network namespace can be created, except in CI. */
const noNetwork =
  spawnSync('unshare', ['-n', 'ip', 'link', 'set', 'lo', 'up']).status !== 0 &&
  process.env.CI === undefined;

test.skipIf(noNetwork).each(['plain', 'TLS'])(
  'a response larger than the kernel buffers is received completely over %s',
  async (kind) => {
    const directory = temporaryDirectory();
    const { cert, key } = writeCertificate(directory, CERTIFICATE_A);
    const tls = kind === 'TLS' ? ['--tls-cert', cert, '--tls-key', key] : [];
    const ports = [await freePort(), await freePort()].map(String);
    const client = [CLIENT, CLI_PATH, ...ports, own.dataDir, ROOT_KEY, WAITS_MS.join(), ...tls];
    const inNetwork = ['-n', 'sh', '-c', 'ip link set lo up && exec "$@"', 'sh'];
    const { stdout } = await run('unshare', [...inNetwork, process.execPath, ...client]);
    const { code, limits } = JSON.parse(stdout);
    removeDirectory(directory);
    const complete = limits.filter((length: number) => length === 100).length;
    const responses = 2 * WAITS_MS.length;
    const fault = `large responses over small buffers, ${kind}`;
    recordMeasurement('P3', fault, `${responses} of 300 KB`, `${complete} received completely`);
    expect([code, complete]).toEqual([0, responses]);
  },
);
