/** Servers that share a Redis. */

import { afterAll } from 'vitest';
import { hasRecovered } from '../../support/readiness.ts';
import {
  removeDirectory,
  type ServerProcess,
  startServer,
  temporaryDirectory,
  waitUntil,
} from '../../support/server.ts';

const SIZES = ['--acceptors', '1', '--counters', '1024'];

/** Data directories for the tests where it is called. Their servers are killed after the tests. */
export function useServers(count: number) {
  const directories = Array.from({ length: count }, () => temporaryDirectory());
  const servers: ServerProcess[] = [];
  afterAll(async () => {
    for (const server of servers) server.child.kill('SIGKILL');
    await Promise.all(servers.map(({ exited }) => exited));
    for (const directory of directories) removeDirectory(directory);
  });
  const start = async (
    i: number,
    url: string,
    env: Record<string, string | undefined> = {},
    workers = 1,
  ) => {
    const args = ['--engine', 'redis', ...SIZES, '--workers', String(workers)];
    servers[i] = await startServer(directories[i], { args, env: { WEIR_REDIS_URL: url, ...env } });
    return servers[i];
  };
  return { directories, servers, start };
}

export interface Readiness {
  status: string;
  reasons?: string[];
  redis: { connected: boolean; joined: boolean; recovering: boolean; machines: number };
}

/** @returns the status and the body of `/readyz` */
export async function readiness({ adminUrl }: ServerProcess): Promise<[number, Readiness]> {
  const response = await fetch(`${adminUrl}/readyz`);
  return [response.status, (await response.json()) as Readiness];
}

export async function waitForStatus(server: ServerProcess, status: string): Promise<Readiness> {
  let last: Readiness | undefined;
  await waitUntil(`/readyz says ${status}`, async () => {
    [, last] = await readiness(server);
    return last.status === status || (status === 'ready' && hasRecovered(last));
  });
  return last!;
}
