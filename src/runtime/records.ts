/**
 * The records that a start begins with: those in the store, the namespaces of the configured
 * policies, and a root key. A configured root key is never stored. A start without any key makes
 * one; it is stored only after it was printed. Of several machines that share a registry, one makes
 * it.
 */

import { UsageRows } from '../analytics/usage-rows.ts';
import { configuredKeyRecord, type KeyRecord, makeKey, rootKeyRecord } from '../auth/keys.ts';
import type { LoadedSettings } from '../config/load.ts';
import { Policies } from '../config/policy-source.ts';
import { Registry } from '../registry/registry.ts';
import type { SharedRegistry } from '../registry/shared/shared-registry.ts';
import { StatsRows } from '../registry/stats-rows.ts';
import type { Store } from '../registry/store/store.ts';
import type { Clock } from '../shared-memory/clock.ts';
import type { AcceptorStats } from '../shared-memory/stats.ts';

export interface InitialRecords {
  registry: Registry;
  /** Where acceptors count the decisions of each namespace. */
  statsRows: StatsRows;
  /** Where they count the use of each override. */
  usageRows: UsageRows;
  policies: Policies;
  /** The root key that this start has made, not stored yet; undefined where there was a key. */
  firstKey: FirstKey | undefined;
}

export interface FirstKey {
  key: string;
  record: KeyRecord;
}

/** @param shared undefined where the store is not shared with other machines */
export async function loadRecords(
  settings: LoadedSettings,
  store: Store,
  shared: SharedRegistry | undefined,
  acceptors: readonly AcceptorStats[],
  clock: Clock,
): Promise<InitialRecords> {
  const nowMs = clock.nowMs();
  const registry = new Registry(store);
  shared?.replica.attach(registry);
  const policies = new Policies(settings);
  const addNamespaces = () => {
    for (const { namespace } of policies.all) registry.ensureNamespace(namespace, nowMs);
  };
  if (shared !== undefined) await shared.change(registry, addNamespaces);
  else {
    addNamespaces();
    registry.commit(store);
  }
  const { rootKey } = settings;
  if (rootKey !== undefined) {
    registry.addConfiguredKey(configuredKeyRecord(rootKey, nowMs, store.hashKey));
  }
  const makesKey =
    registry.keys().length === 0 && (shared === undefined || (await shared.claimFirstKey()));
  const statsRows = new StatsRows(acceptors);
  const usageRows = new UsageRows(
    acceptors.map(({ usage }) => usage),
    clock,
  );
  const records = { registry, statsRows, usageRows, policies };
  if (!makesKey) return { ...records, firstKey: undefined };
  const key = makeKey();
  const record = rootKeyRecord(key, 'first root key', nowMs);
  // Valid from the start on; it is stored when it was printed.
  registry.addConfiguredKey(record);
  return { ...records, firstKey: { key, record } };
}
