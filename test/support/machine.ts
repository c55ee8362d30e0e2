/**
 * A machine without threads: a store, its registry and a writer, which commit to a real Redis as
 * those of a server do. Several of them run in one process.
 */

import { openLog } from '../../src/core/log.ts';
import { Registry } from '../../src/registry/registry.ts';
import { SharedRegistryClient } from '../../src/registry/shared/client.ts';
import { RegistryConnection } from '../../src/registry/shared/connection.ts';
import { Replica } from '../../src/registry/shared/replica.ts';
import { Replicator } from '../../src/registry/shared/replicator.ts';
import type { ScriptRunner } from '../../src/registry/shared/script-runner.ts';
import { DataDirectory } from '../../src/registry/store/directory.ts';
import { SqliteStore } from '../../src/registry/store/sqlite.ts';
import type { Change } from '../../src/registry/store/store.ts';
import { Writer } from '../../src/registry/writer.ts';
import { removeDirectory, temporaryDirectory, waitUntil } from './server.ts';

export const SYNC_MS = 20;
const PREFIX = 'weir';

export interface Machine {
  path: string;
  store: SqliteStore;
  registry: Registry;
  writer: Writer;
  replicator: Replicator;
  client: SharedRegistryClient;
  /** The lines of its log, with their levels. */
  logged: string[];
  /** What was published to its acceptors. */
  published: Change[];
  /** Stops it without a flush, as a kill does. Its data directory stays. */
  kill: () => Promise<void>;
}

export interface MachineOptions {
  /** A data directory that was used before. */
  path?: string;
  /** Wraps the connection, for faults. */
  wrap?: (runner: ScriptRunner) => ScriptRunner;
}

const paths = new Set<string>();

/** Removes the data directories of all machines of this process. */
export function removeMachines(): void {
  for (const path of paths) removeDirectory(path);
  paths.clear();
}

/** Starts a machine, once it is up to date with Redis. */
export async function startMachine(url: string, options: MachineOptions = {}): Promise<Machine> {
  const path = options.path ?? temporaryDirectory();
  paths.add(path);
  const directory = DataDirectory.open(path);
  const store = SqliteStore.open(directory);
  const logged: string[] = [];
  const line = (level: string) => {
    return (first: unknown, second?: string) => {
      logged.push(`${level}: ${second ?? first}`);
    };
  };
  const log = { info: line('info'), warn: line('warn'), error: line('error') };
  const connection = new RegistryConnection(url);
  const client = new SharedRegistryClient(options.wrap?.(connection) ?? connection, PREFIX);
  const replica = new Replica(store, log as never);
  const replicator = new Replicator({
    client,
    replica,
    log: log as never,
    syncMs: SYNC_MS,
    machine: path.slice(-6),
    description: { host: 'test' },
    nowMs: () => 0,
  });
  await waitUntil('it is up to date with Redis', async () => {
    return replicator.synchronize().then(
      () => true,
      () => false,
    );
  });
  const registry = new Registry(store);
  replica.attach(registry);
  const published: Change[] = [];
  const publish = async (changes: readonly Change[]) => {
    published.push(...changes);
  };
  const writer = new Writer(registry, replicator, publish, openLog('silent'), () => 5);
  replica.publishWith(publish);
  replicator.start();
  const kill = async () => {
    connection.close();
    await replicator.stop();
    store.close();
    directory.close();
  };
  return { path, store, registry, writer, replicator, client, logged, published, kill };
}

/** Everything that a machine has, in memory. */
export function contentsOf({ registry }: Machine): object {
  const byRow = <T extends { row: number }>(records: Iterable<T>) => {
    return [...records].sort((a, b) => a.row - b.row);
  };
  return {
    keys: byRow(registry.keys()),
    namespaces: byRow(registry.namespaces()),
    overrides: byRow(registry.overrides()),
    policies: byRow(registry.policies()),
  };
}
