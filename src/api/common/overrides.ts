/**
 * The operations on overrides that both versions of the API share: permissions, and changes of the
 * registry. On the main thread. Failures are ApiErrors, in the order 400, 403, 404. The caller
 * rolls back what a failed operation has changed so far.
 */

import type { NamespaceAction } from '../../auth/permissions.ts';
import {
  EXACT_OVERRIDES_MAX,
  INFIX_OVERRIDES_MAX,
  MIDDLE_MAX_CHARACTERS,
  NAMESPACES_MAX,
  REMOVED_OVERRIDES_MAX,
  WILDCARD_OVERRIDES_MAX,
  WILDCARDS_PER_TEXT_MAX,
} from '../../core/constants.ts';
import { formatValue } from '../../core/describe.ts';
import { ApiError } from '../../core/errors.ts';
import { canonicalBlock } from '../../overrides/cidr.ts';
import { makeOverrideId } from '../../overrides/id.ts';
import { countStars, hasInfix, isPattern } from '../../overrides/pattern.ts';
import { isExact } from '../../overrides/sets.ts';
import { requireIdentifiable } from '../../policies/identifiable.ts';
import { namespaceCreation, overrideChange } from '../../registry/audit-entries.ts';
import { removeRecords } from '../../registry/override-expiry.ts';
import {
  hasEnded,
  type Override,
  type OverrideSelector,
  type Registry,
} from '../../registry/registry.ts';
import { requireFuture } from './expires.ts';
import {
  type NamespaceReference,
  namespaceNotCreatable,
  namespaceNotFound,
  requireNamespaceName,
  tooManyNamespaces,
} from './namespace-reference.ts';
import type { OperationContext } from './operation-context.ts';

/** What the fields of an override mean in both versions. */
export const OVERRIDE_FIELDS = {
  identifier:
    'The identifier to which the override applies. `*` matches any sequence of characters, also ' +
    `an empty one. At most ${WILDCARDS_PER_TEXT_MAX} are accepted. There is no escape, and case ` +
    'matters.',
  cidr:
    'Whether `identifier` is a CIDR block, such as `203.0.113.0/24` or `2001:db8::/32`. The ' +
    'override then applies to each identifier that is an address or a network inside of it.',
  selector: 'The identifier, pattern or CIDR block of the override, exactly as it was set.',
  selectorCidr: 'Whether the override was set with `cidr`.',
  usage: 'Whether the response has the field `usage` of each override.',
  limit: 'Tokens that may be used in one window, in place of the `limit` of a check.',
  duration: 'Length of the window in milliseconds, in place of the `duration` of a check.',
  expires:
    'Time at which the override ends by itself, in Unix milliseconds. It must be in the future. ' +
    'Without it, the override applies until it is deleted, also if it had an end before.',
} as const;

/** The selector of an override, as a request names it. */
export function selectorOf({
  identifier,
  cidr: isCidr = false,
}: {
  identifier: string;
  cidr?: boolean;
}): OverrideSelector {
  return { identifier, ...(isCidr && { isCidr }) };
}

/** The field `cidr` of a response. Literals and patterns have none. */
export function cidrField({ isCidr }: Pick<OverrideSelector, 'isCidr'>): { cidr?: boolean } {
  return isCidr === true ? { cidr: true } : {};
}

/** The field `expires` of a response. An override without an end has none. */
export function endField({ expiresMs }: Pick<Override, 'expiresMs'>): { expires?: number } {
  return expiresMs === undefined ? {} : { expires: expiresMs };
}

/** The field `usage` of a response, for a request that asks for it. */
export function usageField(
  { usage }: OperationContext,
  isRequested: boolean | undefined,
  { id, createdMs }: Override,
) {
  const found = isRequested === true ? usage.usageOf(id) : undefined;
  if (found === undefined) return {};
  const { applied, lastAppliedMs } = found;
  const last = lastAppliedMs > 0 && { lastAppliedAt: lastAppliedMs };
  return { usage: { applied, ...last, since: Math.max(createdMs, usage.sinceMs) } };
}

type OverrideValues = Pick<Override, 'limit' | 'durationMs' | 'isAsync' | 'expiresMs'>;

/** The end of an override, as a request has it. */
export function endOf({ expires }: { expires?: number }): Pick<Override, 'expiresMs'> {
  return expires === undefined ? {} : { expiresMs: expires };
}

/** Creates an override, or replaces its values under the same id. Writes the audit log. */
export function setOverride(
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

/** Without those whose end has come, also if their records are not removed yet. */
export function* liveOverrides(
  { nowMs }: Pick<OperationContext, 'nowMs'>,
  overrides: Iterable<Override>,
): Iterable<Override> {
  const now = nowMs();
  for (const override of overrides) if (!hasEnded(override, now)) yield override;
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
  const { limit, durationMs, isAsync, expiresMs } = values;
  if (before.limit !== limit || before.durationMs !== durationMs) return false;
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

/** A maximum of overrides. */
interface Capacity {
  most: number;
  /** How many there are. */
  count: () => number;
  /** Whether an override counts. */
  includes: (override: Override) => boolean;
  error: () => ApiError;
}

/** A new override has a place in each capacity that counts it. */
function requireCapacities(
  { registry, nowMs }: OperationContext,
  reference: NamespaceReference,
  scope: string,
  selector: OverrideSelector,
): void {
  const capacities = [kindCapacity(registry, scope, selector)];
  if (hasInfix(selector.identifier)) {
    capacities.push(infixCapacity(registry, scope, selector.identifier));
  }
  if (hasInfix(scope) && !hasOverrides(registry, scope)) {
    capacities.push(infixScopeCapacity(registry, reference, scope));
  }
  for (const { most, count, includes, error } of capacities) {
    if (count() < most) continue;
    const ended = registry.endedOverrides(nowMs()).filter(includes);
    removeRecords(registry, ended.slice(0, REMOVED_OVERRIDES_MAX), nowMs());
    if (count() >= most) throw error();
  }
}

function kindCapacity(registry: Registry, scope: string, selector: OverrideSelector): Capacity {
  const isOfExact = (one: OverrideSelector & { scope: string }) => {
    return isExact({ ...one, isNamespacePattern: isPattern(one.scope) });
  };
  const isExactOne = isOfExact({ ...selector, scope });
  const [name, most, kind] = isExactOne
    ? (['exact', EXACT_OVERRIDES_MAX, 'without a wildcard'] as const)
    : (['wildcard', WILDCARD_OVERRIDES_MAX, 'with a wildcard or a CIDR block'] as const);
  return {
    most,
    count: () => registry.overrideCounts[name],
    includes: (override) => isOfExact(override) === isExactOne,
    error: () => {
      return new ApiError('BAD_REQUEST', `the maximum of ${most} overrides ${kind} is reached`);
    },
  };
}

function infixCapacity(registry: Registry, scope: string, identifier: string): Capacity {
  const isNamespacePattern = isPattern(scope);
  const owner = isNamespacePattern
    ? 'the namespace patterns together have'
    : `the namespace ${JSON.stringify(registry.namespaceOf({ scope }))} has`;
  return {
    most: INFIX_OVERRIDES_MAX,
    count: () => registry.infixCountOf(scope),
    includes: (override) => {
      const isSame = isNamespacePattern ? isPattern(override.scope) : override.scope === scope;
      return isSame && hasInfix(override.identifier);
    },
    error: () => infixError('identifier', identifier, owner, 'overrides'),
  };
}

function infixScopeCapacity(
  registry: Registry,
  reference: NamespaceReference,
  scope: string,
): Capacity {
  const field = 'field' in reference ? reference.field : 'namespaceId';
  return {
    most: INFIX_OVERRIDES_MAX,
    count: () => registry.infixScopeCount,
    includes: (override) => hasInfix(override.scope),
    error: () => infixError(field, scope, 'the server has', 'namespace patterns'),
  };
}

function hasOverrides(registry: Registry, scope: string): boolean {
  for (const _ of registry.overridesOf(scope)) return true;
  return false;
}

function infixError(field: string, pattern: string, owner: string, what: string): ApiError {
  const middle = `"*text*" with at most ${MIDDLE_MAX_CHARACTERS} characters`;
  const kind = `${what} with text between wildcards`;
  return new ApiError(
    'BAD_REQUEST',
    `"${field}" must have at most one wildcard, or be ${middle}; got ${formatValue(pattern)}: ` +
      `${owner} the maximum of ${INFIX_OVERRIDES_MAX} ${kind}`,
    { location: `body.${field}`, fix: `delete one of the ${kind}` },
  );
}
