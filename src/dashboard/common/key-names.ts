/** The names of keys by id, where the key of the session may list them. */

import { useLoad } from './controls.tsx';
import { callAll } from './operations.ts';
import type { Grant } from './permissions.ts';

/** weir stores 1 000 keys at most, and one may be configured. */
export const KEYS_MAX = 1_100;

export function useKeyNames(grant: Grant): ReadonlyMap<string, string> {
  const keys = useLoad(async () => {
    if (!grant.has('keys.read')) return [];
    return (await callAll('keys.list', {}, ({ keys }) => keys, KEYS_MAX)).items;
  }, []);
  return new Map(keys.data?.map(({ keyId, name }) => [keyId, name]));
}
