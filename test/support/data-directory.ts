/** Gives every test of a file its own data directory, and the servers that the test starts. */

import { afterEach, beforeEach } from 'vitest';
import { type ApiClient, apiClient } from './operations.ts';
import {
  removeDirectory,
  type ServerOptions,
  type ServerProcess,
  startServer,
  temporaryDirectory,
} from './server.ts';

/**
 * Call it where tests are described. After each test it kills the servers that still run, and
 * removes the directory.
 * @param defaultArgs arguments of a server, unless the test passes others
 */
export function useDataDirectory(defaultArgs: string[]) {
  const own = {
    dataDir: '',
    /** Servers to kill, including those of `start`. */
    started: [] as ServerProcess[],
    /** Kills this server after the test as well. @returns a copy of it with short calls */
    adopt: <T extends ServerProcess>(server: T): T & ApiClient => {
      own.started.push(server);
      return { ...server, ...apiClient(server) };
    },
    start: async (options: ServerOptions = {}) => {
      return own.adopt(await startServer(own.dataDir, { args: defaultArgs, ...options }));
    },
  };
  beforeEach(() => {
    own.dataDir = temporaryDirectory();
  });
  afterEach(async () => {
    for (const server of own.started.splice(0)) {
      server.child.kill('SIGKILL');
      await server.exited;
    }
    removeDirectory(own.dataDir);
  });
  return own;
}
