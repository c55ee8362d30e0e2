/** What every test of a file has for itself: a data directory, and the servers that it starts. */

import { afterEach, beforeEach } from 'vitest';
import {
  removeDirectory,
  type ServerOptions,
  type ServerProcess,
  startServer,
  temporaryDirectory,
} from './server.ts';

/**
 * To be called where tests are described. After each test its servers are killed, if they still
 * run, and its directory is removed.
 * @param defaultArgs what a server is started with, unless the test says otherwise
 */
export function useDataDirectory(defaultArgs: string[]) {
  const own = {
    dataDir: '',
    /** Servers to kill; those of `start` are among them. */
    started: [] as ServerProcess[],
    start: async (options: ServerOptions = {}): Promise<ServerProcess> => {
      const server = await startServer(own.dataDir, { args: defaultArgs, ...options });
      own.started.push(server);
      return server;
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
