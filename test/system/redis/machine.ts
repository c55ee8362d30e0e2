/**
 * A machine without threads: a store, its registry and a writer, which commit to a real Redis as
 * those of a server do. Several of them run in one process.
 */

import { setTimeout as sleep } from 'node:timers/promises';
import { openLog } from '../../../src/core/log.ts';
import { openRedis } from '../../../src/redis/connection.ts';
import { RedisError } from '../../../src/redis/errors.ts';
import type { RedisLink } from '../../../src/redis/link.ts';
import type { Script } from '../../../src/redis/script.ts';
import { Registry } from '../../../src/registry/registry.ts';
import { SharedRegistryClient } from '../../../src/registry/shared/client.ts';
import { Replica, type ReplicaLog } from '../../../src/registry/shared/replica.ts';
import { Replicator } from '../../../src/registry/shared/replicator.ts';
import { COMMIT } from '../../../src/registry/shared/scripts.ts';
import { DataDirectory } from '../../../src/registry/store/directory.ts';
import { SqliteStore } from '../../../src/registry/store/sqlite.ts';
import type { Change } from '../../../src/registry/store/store.ts';
import { Writer } from '../../../src/registry/writer.ts';
import { redisSettings } from '../../support/redis-settings.ts';
import { removeDirectory, temporaryDirectory, waitUntil } from '../../support/server.ts';

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
  /** Faults of its connection. */
  faults?: Faults;
  redisWait?: number;
  /** Its time, which the test moves. */
  clock?: { nowMs: number };
}

/** What happens to the next call of a script. */
export type Fault =
  /** It is executed, but its reply is lost. */
  | 'lost reply'
  /** It is not executed, and gets no reply. */
  | 'lost'
  /** It is executed later, but its reply is lost. */
  | 'late'
  /** It is executed, and its reply is no reply to it. */
  | 'nonsense'
  | 'none';

/** The faults of one connection, which a test sets while it is used. */
export class Faults {
  /** Faults of the next commits, one for each. */
  readonly commits: Fault[] = [];
  /** Whether no call is executed any more. */
  isCutOff = false;
  /** How many more calls are executed and answered. Then the machine is dead. */
  callsLeft = Number.POSITIVE_INFINITY;
  /** Whether the last call is executed before the machine dies. */
  isLastCallExecuted = false;
  calls = 0;
}

const LATE_MS = 150;

class FaultyLink implements Pick<RedisLink, 'call'> {
  readonly #link: Pick<RedisLink, 'call'>;
  readonly #faults: Faults;

  constructor(link: Pick<RedisLink, 'call'>, faults: Faults) {
    this.#link = link;
    this.#faults = faults;
  }

  async call(
    script: Script,
    keys: readonly string[],
    args: readonly string[],
    deadlineMs?: number,
  ): Promise<unknown> {
    const faults = this.#faults;
    faults.calls++;
    if (faults.isCutOff) throw new RedisError('unreachable', 'it is cut off');
    const execute = () => this.#link.call(script, keys, args, deadlineMs);
    if (faults.callsLeft-- <= 0) {
      if (faults.callsLeft === -1 && faults.isLastCallExecuted) await execute();
      return new Promise(() => {});
    }
    const fault = script === COMMIT ? faults.commits.shift() : undefined;
    if (fault === 'late') {
      setTimeout(() => execute().catch(() => {}), LATE_MS);
      throw new RedisError('lost', 'no reply');
    }
    if (fault === 'lost') throw new RedisError('lost', 'no reply');
    const reply = await execute();
    if (fault === 'lost reply') throw new RedisError('lost', 'no reply');
    return fault === 'nonsense' ? ['nonsense'] : reply;
  }
}

const paths = new Set<string>();

/** Removes the data directories of all machines of this process. */
export function removeMachines(): void {
  for (const path of paths) removeDirectory(path);
  paths.clear();
}

/** A log whose lines are kept, each after its level. */
export function recordingLog(): { log: ReplicaLog; lines: string[] } {
  const lines: string[] = [];
  const line = (level: string) => {
    return (first: unknown, second?: string) => {
      lines.push(`${level}: ${second ?? first}`);
    };
  };
  const log = { info: line('info'), warn: line('warn'), error: line('error') };
  return { log: log as unknown as ReplicaLog, lines };
}

/** Starts a machine, once it is up to date with Redis. */
export async function startMachine(url: string, options: MachineOptions = {}): Promise<Machine> {
  const path = options.path ?? temporaryDirectory();
  paths.add(path);
  const directory = DataDirectory.open(path);
  const store = SqliteStore.open(directory);
  const { log, lines: logged } = recordingLog();
  const { redisWait = 0, clock = { nowMs: 5 } } = options;
  const link = openRedis(redisSettings(url, { redisWait }));
  const client = new SharedRegistryClient(
    new FaultyLink(link, options.faults ?? new Faults()),
    PREFIX,
  );
  const replica = new Replica(store, log);
  const replicator = new Replicator({
    client,
    replica,
    log,
    syncMs: SYNC_MS,
    nowMs: () => 0,
    reconnectMs: 1_000,
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
  const writer = new Writer(registry, replicator, publish, openLog('silent'), () => clock.nowMs);
  replica.publishWith(publish);
  replicator.start({ machine: path.slice(-6), describe: () => ({ host: 'test' }) });
  const kill = async () => {
    // A machine that a test has cut off never gets an answer.
    link.close();
    await Promise.race([replicator.stop(() => {}), sleep(50)]);
    store.close();
    directory.close();
  };
  return { path, store, registry, writer, replicator, client, logged, published, kill };
}
