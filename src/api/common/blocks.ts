/**
 * Blocks of identifiers. A block is an override of its own kind: of one identifier in one
 * namespace, with an end and with values that deny every check and every acquire. It replaces no
 * override: what applied before applies again after its end. On the main thread.
 */

import Type from 'typebox';
import type { NamespaceAction } from '../../auth/permissions.ts';
import { BLOCK_REASON_MAX_CHARACTERS, BLOCK_WINDOW_MS } from '../../core/constants.ts';
import { ApiError } from '../../core/errors.ts';
import { makeBlockId } from '../../overrides/id.ts';
import type { OverrideMatch } from '../../overrides/sets.ts';
import { requireReachableText } from '../../policies/identifiable.ts';
import { overrideChange } from '../../registry/audit-entries.ts';
import { removeRecords } from '../../registry/override-expiry.ts';
import {
  hasEnded,
  type Override,
  type Registry,
  type StoredNamespace,
} from '../../registry/registry.ts';
import { requireFuture } from './expires.ts';
import { findNamespace, type NamespaceQuery } from './namespace-query.ts';
import type { OperationContext } from './operation-context.ts';
import { requireCapacities } from './override-capacities.ts';
import { idText, named, unixMs } from './responses.ts';

/** Nothing of a window is ever used. Its end is the `reset` of a denied check. */
const DENIES_ALL = { limit: 0, durationMs: BLOCK_WINDOW_MS, concurrency: 0, isAsync: false };

interface BlockRequest extends NamespaceQuery {
  identifier: string;
  expires: number;
  reason?: string;
}

/** Blocks an identifier, or changes its block under the same id. Writes the audit log. */
export function putBlock(context: OperationContext, request: BlockRequest): Override {
  const { registry, gateways, nowMs } = context;
  const { identifier, expires: expiresMs, reason } = request;
  requireFuture(expiresMs, nowMs(), 'give a time in the future');
  const namespace = findNamespace(context, request, 'set_override');
  const policy = gateways.policies().find((one) => one.namespace === namespace.name);
  if (policy !== undefined) requireReachableText(policy, identifier);
  const selector = { identifier, isBlocking: true } as const;
  const stored = registry.override(namespace.id, selector);
  const before = liveBlock(context, namespace, identifier);
  if (stored !== before) removeRecords(registry, [stored!], nowMs());
  if (before === undefined) requireCapacities(context, namespace, namespace.id, selector);
  else if (before.expiresMs === expiresMs && before.reason === reason) return before;
  const { id, createdMs } = before ?? { id: makeBlockId(), createdMs: nowMs() };
  const why = reason !== undefined && { reason };
  const record = { ...DENIES_ALL, ...selector, id, scope: namespace.id, createdMs, expiresMs };
  const block = registry.putOverride({ ...record, ...why });
  context.audit(overrideChange(registry, before, block));
  return block;
}

/** @throws ApiError (404) if the identifier is not blocked */
export function removeBlock(
  context: OperationContext,
  request: NamespaceQuery & { identifier: string },
): void {
  const { registry } = context;
  const { identifier } = request;
  const block = liveBlock(context, findNamespace(context, request, 'delete_override'), identifier);
  if (block === undefined) {
    const message = `${JSON.stringify(identifier)} is not blocked in that namespace`;
    throw new ApiError('NOT_FOUND', message);
  }
  registry.removeOverride(block);
  context.audit(overrideChange(registry, block, undefined));
}

/** Those of one namespace, or of all that the key may read. */
export function* readableBlocks(
  context: OperationContext,
  query: NamespaceQuery,
): Iterable<Override> {
  const { registry, permissions, nowMs } = context;
  const action: NamespaceAction = 'read_override';
  const isOfOne = query.namespaceId !== undefined || query.namespaceName !== undefined;
  const namespace = isOfOne ? findNamespace(context, query, action) : undefined;
  if (!isOfOne && !permissions.mayInSomeNamespace(action)) permissions.require(action, undefined);
  const now = nowMs();
  for (const block of namespace ? registry.overridesOf(namespace.id) : registry.overrides()) {
    if (block.isBlocking !== true || hasEnded(block, now)) continue;
    if (permissions.may(action, block.scope)) yield block;
  }
}

function liveBlock(
  { registry, nowMs }: OperationContext,
  namespace: StoredNamespace,
  identifier: string,
): Override | undefined {
  const block = registry.override(namespace.id, { identifier, isBlocking: true });
  return block === undefined || hasEnded(block, nowMs()) ? undefined : block;
}

export function blockId() {
  return idText('rlor', 'Id of the block, which v2 names as the `overrideId` of a denied check.');
}

/** The schema of `shownBlock`. */
export function blockFields() {
  return {
    id: blockId(),
    expires: unixMs('Time at which the block ends by itself'),
    reason: Type.Optional(
      named(`Why it is blocked: up to ${BLOCK_REASON_MAX_CHARACTERS} characters.`),
    ),
  };
}

export function shownBlock({ id, expiresMs, reason }: Override | OverrideMatch) {
  return { id, expires: expiresMs!, ...(reason !== undefined && { reason }) };
}

/** The namespace of a block. */
export function blockOwner(registry: Registry, { scope }: Override) {
  return { namespaceId: scope, namespaceName: registry.namespaceOf({ scope }) };
}
