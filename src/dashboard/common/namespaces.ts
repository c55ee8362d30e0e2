/** The namespaces that the key may see, for the views that choose one. */

import { type Load, useLoad } from './controls.tsx';
import { callAll, type Response } from './operations.ts';
import type { Grant } from './permissions.ts';

/** Namespaces that a view loads. weir has 10 000 at most. */
const NAMESPACES_SHOWN_MAX = 10_000;

export type Namespace = Response<'ratelimits.listNamespaces'>['namespaces'][number];

export function useNamespaces(grant: Grant): Load<Namespace[]> {
  return useLoad(async () => {
    if (!grant.mayInSome('read_namespace')) return [];
    const { items } = await callAll(
      'ratelimits.listNamespaces',
      {},
      ({ namespaces }) => namespaces,
      NAMESPACES_SHOWN_MAX,
    );
    return items;
  }, []);
}
