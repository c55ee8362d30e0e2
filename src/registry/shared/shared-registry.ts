/**
 * The registry that all machines with one Redis share, as a start sees it: connects, brings the
 * store up to date, and refuses a store whose records would be lost, and a Redis that may delete
 * them. Without Redis, a machine that has a replica starts with it; any other start fails with a
 * StartError.
 */

import { randomBytes } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { StartError } from '../../core/errors.ts';
import { openRedis } from '../../redis/connection.ts';
import { RedisError } from '../../redis/errors.ts';
import type { RedisLink } from '../../redis/link.ts';
import { ServerWatch } from '../../redis/server-watch.ts';
import type { RedisSettings } from '../../redis/settings.ts';
import { systemMs } from '../../shared-memory/clock.ts';
import type { Registry } from '../registry.ts';
import type { Store } from '../store/store.ts';
import { SharedRegistryClient } from './client.ts';
import { Replica, type ReplicaLog } from './replica.ts';
import { Replicator } from './replicator.ts';

/** How often a start tries to bring the replica up to date, with a replica and without. */
const ATTEMPTS = { withReplica: 10, without: 50 } as const;
const ATTEMPT_INTERVAL_MS = 100;

/** How long a start waits for all nodes of a cluster, to see their settings. */
const ALL_SERVERS_MS = 1_000;

export interface SharedRegistryOptions {
  settings: RedisSettings;
  store: Store;
  log: ReplicaLog;
}

export class SharedRegistry {
  readonly replicator: Replicator;
  readonly replica: Replica;
  readonly serverWatch: ServerWatch;
  /** Whether Redis did not respond at the start: the store may lack what Redis has. */
  startedWithoutRedis = false;
  readonly #client: SharedRegistryClient;
  readonly #link: RedisLink;
  readonly #log: ReplicaLog;

  /** @throws StartError */
  static async open(options: SharedRegistryOptions): Promise<SharedRegistry> {
    requireNoOwnRecords(options.store);
    const shared = new SharedRegistry(options);
    try {
      await shared.#bringUpToDate();
      shared.serverWatch.start();
    } catch (error) {
      await shared.close();
      throw error;
    }
    return shared;
  }

  private constructor({ settings, store, log }: SharedRegistryOptions) {
    this.#link = openRedis(settings);
    this.serverWatch = new ServerWatch(this.#link, settings.redisEviction, log);
    this.#client = new SharedRegistryClient(this.#link, settings.redisPrefix);
    this.#log = log;
    this.replica = new Replica(store, log);
    this.replicator = new Replicator({
      client: this.#client,
      replica: this.replica,
      log,
      syncMs: settings.syncMs,
      nowMs: systemMs,
    });
  }

  /**
   * Runs work that changes the registry, before the server runs.
   * @returns whether its changes are in Redis
   */
  async change(registry: Registry, work: () => void): Promise<boolean> {
    for (;;) {
      work();
      const { status } = await this.replicator.commit(registry);
      if (status !== 'conflict') return status === 'committed';
    }
  }

  /** Whether this machine is to make the first key: one machine at a time does. */
  async claimFirstKey(): Promise<boolean> {
    try {
      const claim = await this.#client.claimFirstKey(randomBytes(8).toString('hex'));
      if (claim === 'claimed') return true;
      this.#log.info('another machine makes the first root key, and prints it');
    } catch (error) {
      const { message } = error as Error;
      this.#log.warn(`there is no API key, and none can be made without Redis: ${message}`);
    }
    return false;
  }

  async close(): Promise<void> {
    this.serverWatch.close();
    await this.replicator.stop(() => this.#link.close());
  }

  async #bringUpToDate(): Promise<void> {
    const isReplica = this.replica.mark !== undefined;
    const attempts = isReplica ? ATTEMPTS.withReplica : ATTEMPTS.without;
    for (let attempt = 1; ; attempt++) {
      this.serverWatch.requireNoEviction();
      try {
        await this.replicator.synchronize();
        break;
      } catch (error) {
        if (attempt === attempts) return this.#startWithout(error as Error);
      }
      await sleep(ATTEMPT_INTERVAL_MS);
    }
    // A start does not fail because a node of a cluster is down.
    await this.#link.ready(ALL_SERVERS_MS).catch(() => {});
    this.serverWatch.requireNoEviction();
  }

  #startWithout(error: Error): void {
    const { mark } = this.replica;
    if (!(error instanceof RedisError)) throw new StartError(error.message);
    const fault = `the registry in Redis cannot be read: ${error.message}`;
    if (mark === undefined) throw new StartError(`${fault}; a first start needs it`);
    this.startedWithoutRedis = true;
    this.#log.warn({ version: mark.version }, `${fault}; the start uses the replica in the store`);
  }
}

/** @throws StartError if the store has records that Redis never had */
function requireNoOwnRecords(store: Store): void {
  if (store.replica !== undefined) return;
  const tables = ['keys', 'namespaces', 'overrides'] as const;
  const counts = tables.map((table) => ({ table, count: store.read(table).length }));
  const own = counts.filter(({ count }) => count > 0);
  if (own.length === 0) return;
  const listed = own
    .map(({ table, count }) => `${count} ${count === 1 ? table.slice(0, -1) : table}`)
    .join(', ');
  throw new StartError(
    `the store in WEIR_DATA_DIR has records that are not in Redis (${listed}): move them there` +
      ' with weir migrate, or start with an empty data directory',
  );
}
