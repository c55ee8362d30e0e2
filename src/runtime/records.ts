/**
 * The records that a start begins with: those in the store, the namespaces of the configured
 * policies, and a root key. A configured root key is never stored. A start without any key makes
 * one; it is stored only after it was printed.
 */

import { configuredKeyRecord, makeKey, rootKeyRecord } from '../auth/keys.ts';
import type { LoadedSettings } from '../config/load.ts';
import { Policies } from '../config/policy-source.ts';
import { keyCreation } from '../registry/audit-entries.ts';
import { Registry } from '../registry/registry.ts';
import type { Store } from '../registry/store/store.ts';

export interface InitialRecords {
  registry: Registry;
  policies: Policies;
  /** The root key that this start has made, not committed yet; undefined where there was a key. */
  firstKey: string | undefined;
}

export function loadRecords(settings: LoadedSettings, store: Store, nowMs: number): InitialRecords {
  const registry = new Registry(store);
  const policies = new Policies(settings.file);
  for (const { namespace } of policies.all) registry.ensureNamespace(namespace, nowMs);
  registry.commit(store);
  const { rootKey } = settings;
  if (rootKey !== undefined) {
    registry.addConfiguredKey(configuredKeyRecord(rootKey, nowMs, store.hashKey));
  }
  if (registry.keys().length > 0) return { registry, policies, firstKey: undefined };
  const firstKey = makeKey();
  const record = rootKeyRecord(firstKey, 'first root key', nowMs);
  registry.addKey(record);
  registry.audit({ at: nowMs, ...keyCreation(record), keyId: null, by: 'first start' });
  return { registry, policies, firstKey };
}
