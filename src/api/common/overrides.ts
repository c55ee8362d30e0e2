/**
 * The operations on overrides that both versions of the API share: permissions, and changes of the
 * registry. On the main thread. Failures are ApiErrors, in the order 400, 403, 404. The caller
 * rolls back what a failed operation has changed so far.
 */

import type { NamespaceAction } from '../../auth/permissions.ts';
import { NAMESPACES_MAX, WILDCARDS_PER_TEXT_MAX } from '../../core/constants.ts';
import { formatValue } from '../../core/describe.ts';
import { ApiError } from '../../core/errors.ts';
import { canonicalBlock } from '../../overrides/cidr.ts';
import { makeOverrideId } from '../../overrides/id.ts';
import { countStars, isPattern } from '../../overrides/pattern.ts';
import { requireIdentifiable } from '../../policies/identifiable.ts';
import { namespaceCreation, overrideChange } from '../../registry/audit-entries.ts';
import { removeRecords } from '../../registry/override-expiry.ts';
import { hasEnded, type Override, type OverrideSelector } from '../../registry/registry.ts';
import { requireFuture } from './expires.ts';
import {
  type NamespaceReference,
  namespaceNotCreatable,
  namespaceNotFound,
  requireNamespaceName,
  tooManyNamespaces,
} from './namespace-reference.ts';
import type { OperationContext } from './operation-context.ts';
import { requireCapacities } from './override-capacities.ts';
import type { OverrideValues } from './override-fields.ts';

/** Creates an override, or replaces its values under the same id. Writes the audit log. */
export function setAndAuditOverride(
  context: OperationContext,
  reference: NamespaceReference,
  selector: OverrideSelector,
  values: OverrideValues,
) {
  const { override, before, newNamespace } = putOverride(context, reference, selector, values);
  if (newNamespace !== undefined) context.audit(namespaceCreation(newNamespace));
  if (override !== before) context.audit(overrideChange(context.registry, before, override));
  return override;
}

/** Sets an override without entries in the audit log: an import has one entry for all. */
export function putOverride(
  context: OperationContext,
  reference: NamespaceReference,
  selector: OverrideSelector,
  values: OverrideValues,
) {
  const { registry, nowMs } = context;
  requireFuture(values.expiresMs, nowMs());
  if (selector.isCidr === true) requireBlock(selector.identifier);
  else requireWildcardsMax('identifier', selector.identifier);
  const existing = resolveScope(context, reference, 'set_override');
  const newNamespace = existing === undefined ? createNamespace(context, reference) : undefined;
  const scope = existing ?? newNamespace!.id;
  requireReachable(context, scope, selector);
  const stored = registry.override(scope, selector);
  const before = findLive(context, scope, selector);
  // It has ended: its place is free.
  if (stored !== before) removeRecords(registry, [stored!], nowMs());
  if (before === undefined) requireCapacities(context, reference, scope, selector);
  else if (hasSameValues(before, values)) return { override: before, before, newNamespace };
  const { id, createdMs } = before ?? { id: makeOverrideId(), createdMs: nowMs() };
  const override = registry.putOverride({ id, scope, ...selector, createdMs, ...values });
  return { override, before, newNamespace };
}

export function removeOverride(
  context: OperationContext,
  reference: NamespaceReference,
  selector: OverrideSelector,
): void {
  const override = findOverride(context, reference, selector, 'delete_override');
  context.registry.removeOverride(override);
  context.audit(overrideChange(context.registry, override, undefined));
}

/** @param selector exactly as it was set */
export function findOverride(
  context: OperationContext,
  reference: NamespaceReference,
  selector: OverrideSelector,
  action: NamespaceAction = 'read_override',
): Override {
  const scope = resolveScope(context, reference, action);
  if (scope === undefined) throw namespaceNotFound(reference);
  const override = findLive(context, scope, selector);
  if (override !== undefined) return override;
  const { identifier, isCidr } = selector;
  const what = `${isCidr === true ? 'the CIDR block ' : ''}${JSON.stringify(identifier)}`;
  throw new ApiError('NOT_FOUND', `there is no override of ${what} in that namespace`);
}

export function overridesInScope(
  context: OperationContext,
  reference: NamespaceReference,
): Iterable<Override> {
  const scope = resolveScope(context, reference, 'read_override');
  if (scope === undefined) throw namespaceNotFound(reference);
  return liveOverrides(context, context.registry.overridesOf(scope));
}

/** Those of all namespaces, and of patterns of namespaces, that the key may read. */
export function* readableOverrides(context: OperationContext): Iterable<Override> {
  const { registry, permissions } = context;
  if (!permissions.mayInSomeNamespace('read_override'))
    permissions.require('read_override', undefined);
  for (const override of liveOverrides(context, registry.overrides())) {
    const { scope } = override;
    if (permissions.may('read_override', isPattern(scope) ? undefined : scope)) yield override;
  }
}

/** Without blocks, and those whose end has come, also if their records are not removed yet. */
export function* liveOverrides(
  { nowMs }: Pick<OperationContext, 'nowMs'>,
  overrides: Iterable<Override>,
): Iterable<Override> {
  const now = nowMs();
  for (const override of overrides) {
    if (override.isBlocking !== true && !hasEnded(override, now)) yield override;
  }
}

function findLive(
  { registry, nowMs }: OperationContext,
  scope: string,
  selector: OverrideSelector,
): Override | undefined {
  const override = registry.override(scope, selector);
  return override === undefined || hasEnded(override, nowMs()) ? undefined : override;
}

function hasSameValues(before: Override, values: OverrideValues): boolean {
  const { limit, durationMs, concurrency, isAsync, expiresMs } = values;
  if (before.limit !== limit || before.durationMs !== durationMs) return false;
  if (before.concurrency !== concurrency) return false;
  return before.isAsync === isAsync && before.expiresMs === expiresMs;
}

/**
 * The scope of overrides that a request names: the id of a namespace, or a pattern of names.
 * @returns undefined when no namespace has the name
 */
function resolveScope(
  { registry, permissions }: OperationContext,
  reference: NamespaceReference,
  action: NamespaceAction,
) {
  if ('id' in reference) {
    permissions.require(action, reference.id);
    if (registry.namespaceById(reference.id) === undefined) throw namespaceNotFound(reference);
    return reference.id;
  }
  const { name, field } = reference;
  requireNamespaceName(field, name);
  requireWildcardsMax(field, name);
  if (isPattern(name)) {
    permissions.require(action, undefined);
    return name;
  }
  const namespace = registry.namespaceByName(name);
  permissions.requireNamed(action, namespace?.id);
  return namespace?.id;
}

function createNamespace(
  { registry, permissions, nowMs }: OperationContext,
  reference: NamespaceReference,
) {
  if ('id' in reference) throw new Error('a namespace is not created by its id');
  if (!permissions.mayCreateNamespace) throw namespaceNotCreatable(reference.name);
  if (registry.namespaceCount >= NAMESPACES_MAX) throw tooManyNamespaces();
  return registry.addNamespace(reference.name, nowMs());
}

function requireWildcardsMax(field: string, pattern: string): void {
  const stars = countStars(pattern);
  if (stars <= WILDCARDS_PER_TEXT_MAX) return;
  const accepted = `at most ${WILDCARDS_PER_TEXT_MAX} wildcards "*"`;
  throw new ApiError('BAD_REQUEST', `"${field}" must have ${accepted}; got ${stars}`, {
    location: `body.${field}`,
    fix: `give ${accepted}`,
  });
}

/** For a pattern of namespaces there is no check: it may match one without a policy later. */
function requireReachable(
  { registry, gateways }: OperationContext,
  scope: string,
  { identifier, isCidr = false }: OverrideSelector,
): void {
  const name = registry.namespaceById(scope)?.name;
  const policy = gateways.policies().find(({ namespace }) => namespace === name);
  if (policy !== undefined) requireIdentifiable(policy, identifier, isCidr);
}

/** Each block has one text, so that one block cannot have several overrides. */
function requireBlock(identifier: string): void {
  const block = canonicalBlock(identifier);
  if (block === identifier) return;
  const accepted =
    block === undefined
      ? 'a CIDR block such as 203.0.113.0/24 or 2001:db8::/32'
      : `a CIDR block in its canonical form, ${JSON.stringify(block)}`;
  throw new ApiError(
    'BAD_REQUEST',
    `"identifier" must be ${accepted}; got ${formatValue(identifier)}`,
    { location: 'body.identifier', fix: `give ${accepted}` },
  );
}
