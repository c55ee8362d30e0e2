/** Prometheus, and its tool for checks of files and metrics. */

import { spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { isMissing } from '../../support/programs/program.ts';
import { freePort, waitUntil } from '../../support/server.ts';
import { startGateway } from '../gateways/gateway-process.ts';

export const isPrometheusMissing = isMissing('prometheus', '--version');
export const isPromtoolMissing = isMissing('promtool', '--version');

/** @returns the exit code, and all that it printed */
export function promtool(args: string[], input = ''): [number | null, string] {
  const { status, stdout, stderr } = spawnSync('promtool', args, { input, encoding: 'utf8' });
  return [status, stdout + stderr];
}

/** Starts Prometheus. @returns the URL of its API, and a function that stops it */
export async function startPrometheus(
  configuration: string,
): Promise<{ url: string; stop: () => Promise<void> }> {
  const port = await freePort();
  const { stop } = await startGateway({
    configuration,
    fileName: 'prometheus.yml',
    port,
    command: (path, directory) => [
      'prometheus',
      ...[`--config.file=${path}`, `--storage.tsdb.path=${join(directory, 'data')}`],
      `--web.listen-address=127.0.0.1:${port}`,
    ],
  });
  // It listens before it answers queries.
  await waitUntil('Prometheus is ready', async () => {
    return (await fetch(`http://127.0.0.1:${port}/-/ready`)).ok;
  });
  return { url: `http://127.0.0.1:${port}/api/v1`, stop };
}
