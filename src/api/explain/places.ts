/**
 * What POST /v1/ratelimits.findIdentifier asks the main thread: a page of the namespaces that the
 * key may read, with the override and the recent decisions of the identifier in each.
 */

import { FOUND_NAMESPACES_MAX } from '../../core/constants.ts';
import { namespaceKey } from '../../core/namespace.ts';
import type { OverrideMatch } from '../../overrides/sets.ts';
import type { StoredNamespace } from '../../registry/registry.ts';
import { shownBlock } from '../common/blocks.ts';
import type { OperationContext, OperationHandler } from '../common/operation-context.ts';
import { shownV1 } from '../common/override-fields.ts';
import { pageOf } from '../common/pages.ts';
import { type ShownDecision, shownDecision } from '../common/recent-decisions.ts';

export interface FindQuestion {
  identifier: string;
  limit?: number;
  cursor?: string;
}

export interface KnownPlaces {
  places: KnownPlace[];
  cursor?: string;
  total: number;
}

/** What the main thread knows of an identifier in one namespace. */
interface KnownPlace extends Decided {
  id: string;
  name: string;
  block?: ReturnType<typeof shownBlock>;
  override?: ReturnType<typeof shownV1> & { namespace: string };
  /** Whether the block or the override is for this identifier alone. */
  isOwnOverride: boolean;
}

interface Decided {
  last?: ShownDecision;
  lastDenied?: ShownDecision;
}

export const knownPlaces: OperationHandler<KnownPlaces> = (context, input) => {
  const request = input as FindQuestion;
  const { registry, permissions } = context;
  if (!permissions.mayInSomeNamespace('read_namespace')) {
    permissions.require('read_namespace', undefined);
  }
  const readable = registry.namespaces().filter(({ id }) => permissions.may('read_namespace', id));
  const { items, rest } = pageOf(readable, request, FOUND_NAMESPACES_MAX);
  const decided = decisionsOn(context, request.identifier, items);
  const places = items.map((namespace): KnownPlace => {
    const { id, name, predecessor } = namespace;
    const key = namespaceKey(name, predecessor);
    const winner = permissions.may('read_override', id)
      ? context.overrides.match(name, request.identifier, 0, key).winner
      : undefined;
    return {
      ...{ id, name, ...decided.get(key) },
      ...(winner && shownWinner(winner)),
      isOwnOverride: winner?.identifier === request.identifier,
    };
  });
  return { places, ...rest };
};

function shownWinner(winner: OverrideMatch): Pick<KnownPlace, 'block' | 'override'> {
  if (winner.isBlocking === true) return { block: shownBlock(winner) };
  return { override: { ...shownV1(winner), namespace: winner.namespace } };
}

/** The recent decisions on an identifier, by the key of the namespace: one scan for all of them. */
function decisionsOn(
  { recentDecisions, permissions }: OperationContext,
  identifier: string,
  namespaces: readonly StoredNamespace[],
): Map<string, Decided> {
  const names = new Map(
    namespaces
      .filter(({ id }) => permissions.may('read_analytics', id))
      .map(({ name, predecessor }) => [namespaceKey(name, predecessor), name] as const),
  );
  const decided = new Map<string, Decided>();
  if (recentDecisions === undefined) return decided;
  const byHash = new Map<number, Decided>();
  const isNamespace = (key: string) => names.has(key);
  for (const found of recentDecisions.find({ identifier, isNamespace })) {
    const known = byHash.get(found.namespaceHash) ?? {};
    if (known.last !== undefined && (found.isAllowed || known.lastDenied !== undefined)) continue;
    const decision = recentDecisions.read(found);
    if (decision === undefined) continue;
    const shown = shownDecision(decision, names.get(decision.namespaceKey)!);
    known.last ??= shown;
    if (!found.isAllowed) known.lastDenied = shown;
    byHash.set(found.namespaceHash, known);
    decided.set(decision.namespaceKey, known);
  }
  return decided;
}
