/**
 * Moves the records of a local store into Redis, where there is no registry yet. The store is then
 * the first replica. A migration that was interrupted can be repeated: the registry in Redis is
 * written as a whole, and recognized by its hash key and its records.
 */

import { randomBytes } from 'node:crypto';
import { StartError } from '../../core/errors.ts';
import { TABLE_NAMES, type TableName } from '../store/schema.ts';
import type { Store } from '../store/store.ts';
import type { SharedRegistryClient } from './client.ts';
import { Snapshot } from './snapshot.ts';

/** Machines that run have this time to restore a registry that Redis has lost. */
const GRACE = { pollMs: 1_000, reconnectMs: 4_000 } as const;

type MigratedStore = Pick<Store, 'hashKey' | 'replica' | 'read' | 'commit'>;

export interface MigrationResult {
  /** `present`: Redis has the records of this store already. */
  status: 'moved' | 'present' | 'possible';
  records: Readonly<Record<TableName, number>>;
}

/**
 * @param isDryRun whether to change nothing
 * @throws StartError if Redis has another registry
 * @throws RedisError
 */
export async function migrate(
  store: MigratedStore,
  client: SharedRegistryClient,
  isDryRun: boolean,
): Promise<MigrationResult> {
  const snapshot = Snapshot.of((table) => store.read(table));
  const counts = TABLE_NAMES.map((table) => [table, snapshot.records(table).size] as const);
  const records = Object.fromEntries(counts) as Record<TableName, number>;
  const reply = await client.read(store.replica);
  if (reply.status !== 'empty') {
    const isReplica = store.replica?.history === reply.head.history;
    if (!isReplica) await adoptIdenticalRegistry(store, client, snapshot, isDryRun);
    return { status: 'present', records };
  }
  if (isDryRun) return { status: 'possible', records };
  const { hashKey } = store;
  const [history, commit, id] = [makeHexId(), makeHexId(), makeHexId()];
  const mark = store.replica ?? { history, version: 1, commit, earlier: [], hashKey };
  if (!(await client.install(mark, snapshot, id, GRACE))) throw otherRegistryError();
  store.commit([], mark);
  return { status: 'moved', records };
}

/** For a migration that was interrupted after Redis had the records. */
async function adoptIdenticalRegistry(
  store: MigratedStore,
  client: SharedRegistryClient,
  snapshot: Snapshot,
  isDryRun: boolean,
): Promise<void> {
  const all = await client.readAll();
  const isSame =
    all !== undefined &&
    Buffer.from(store.hashKey).equals(all.head.hashKey) &&
    all.snapshot.changesFrom(snapshot).length === 0;
  if (!isSame) throw otherRegistryError();
  const { settlingMs: _, ...mark } = all.head;
  if (!isDryRun) store.commit([], mark);
}

function otherRegistryError(): StartError {
  return new StartError(
    'Redis has another registry already: export the overrides of this store with weir overrides' +
      ' export while WEIR_ENGINE=memory serves it, import them where the registry is, and start' +
      ' with an empty data directory',
  );
}

function makeHexId(): string {
  return randomBytes(16).toString('hex');
}
