/** Gives the tests of a file or of a group one server, with its directory and its client. */

import { join } from 'node:path';
import { afterAll, beforeAll, expect } from 'vitest';
import type { Store } from '../../src/registry/store/store.ts';
import { type EngineMode, startEngineServer } from './engine-modes.ts';
import { type ApiClient, apiClient } from './operations.ts';
import { type PolicySettings, writeConfig } from './policy-config.ts';
import {
  freePort,
  removeDirectory,
  type ServerOptions,
  type SteppedServer,
  startServer,
  startSteppedServer,
  temporaryDirectory,
} from './server.ts';
import { withStore } from './store.ts';

/** The smallest table, and one thread of each kind. */
export const SMALL = ['--counters', '1024', '--acceptors', '1', '--workers', '1'];

interface TestServerOptions extends ServerOptions {
  /** Arguments besides those of `SMALL`. The last of several equal flags counts. */
  args?: string[];
  /** Starts it by `startEngineServer`, in this mode. */
  mode?: EngineMode;
  /** The policies of its configuration file. Gateways then have a port of their own. */
  policies?: Record<string, PolicySettings>;
  /** Writes records before the start. */
  prepare?: (store: Store) => void;
}

/** `stepClock` exists with a mode or with `hasSteppedClock`. */
export interface TestServer extends SteppedServer, ApiClient {
  /** For files of the test; the data directory is in it. */
  directory: string;
  dataDir: string;
  /** The port of the listener for gateways. */
  gatewayPort: number;
  start: () => Promise<void>;
  /** Expects that it ends with 0. */
  expectStop: () => Promise<void>;
}

/** Call it before other hooks, where tests are described: the server starts before them. */
export function useServer(options: TestServerOptions = {}): TestServer {
  const { mode, policies, prepare, ...given } = options;
  const directory = temporaryDirectory();
  const dataDir = join(directory, 'data');
  const server = { directory, dataDir } as TestServer;
  Object.assign(server, apiClient(server), {
    start: async () => {
      const args = [...SMALL, ...(given.args ?? [])];
      if (policies !== undefined) {
        server.gatewayPort = await freePort();
        const config = writeConfig(directory, policies);
        args.push('--config', config, '--gateway-port', String(server.gatewayPort));
      }
      const all = { ...given, args };
      if (mode !== undefined) Object.assign(server, await startEngineServer(mode, dataDir, all));
      else if (given.hasSteppedClock) Object.assign(server, await startSteppedServer(dataDir, all));
      else Object.assign(server, await startServer(dataDir, all));
    },
    expectStop: async () => expect(await server.stop()).toEqual({ code: 0, signal: null }),
  });
  beforeAll(async () => {
    if (prepare !== undefined) withStore(dataDir, prepare);
    await server.start();
  });
  afterAll(async () => {
    await server.expectStop();
    removeDirectory(directory);
  });
  return server;
}
