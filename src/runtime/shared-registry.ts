/** Opens the registry that machines share, where the settings name a Redis. */

import type { LoadedSettings } from '../config/load.ts';
import type { SharedRegistry } from '../registry/shared/shared-registry.ts';
import type { Store } from '../registry/store/store.ts';

/**
 * Brings the store up to date with Redis. Its modules are loaded with this engine only.
 * @returns undefined for the memory engine
 * @throws StartError
 */
export async function joinSharedRegistry(
  { redis, logLevel, logFormat }: LoadedSettings,
  store: Store,
): Promise<SharedRegistry | undefined> {
  if (redis === undefined) return undefined;
  const { openLog } = await import('../core/log.ts');
  const { SharedRegistry } = await import('../registry/shared/shared-registry.ts');
  return SharedRegistry.open({
    settings: redis,
    store,
    log: openLog(logLevel, logFormat),
  });
}
