/** What every test of a file has for itself: a data directory, and the servers that it starts. */

import { afterEach, beforeEach } from 'vitest';
import {
  type Options,
  type Running,
  removeDirectory,
  startServer,
  temporaryDirectory,
} from './server.ts';

/**
 * To be called where tests are described. After each test its servers are killed, if they still
 * run, and its directory is removed.
 * @param args what a server is started with, unless the test says otherwise
 */
export function eachOnItsOwn(args: string[]) {
  const own = {
    dataDir: '',
    /** Servers to kill; those of `start` are among them. */
    started: [] as Running[],
    start: async (options: Options = {}): Promise<Running> => {
      const server = await startServer(own.dataDir, { args, ...options });
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
