/**
 * The maximums of overrides. A new override needs a place in each maximum that counts it. The
 * places of overrides that have ended are freed when they are needed.
 */

import {
  EXACT_OVERRIDES_MAX,
  INFIX_OVERRIDES_MAX,
  MIDDLE_MAX_CHARACTERS,
  REMOVED_OVERRIDES_MAX,
  WILDCARD_OVERRIDES_MAX,
} from '../../core/constants.ts';
import { formatValue } from '../../core/describe.ts';
import { ApiError } from '../../core/errors.ts';
import { hasInfix, isPattern } from '../../overrides/pattern.ts';
import { removeRecords } from '../../registry/override-expiry.ts';
import {
  kindOf,
  type Override,
  type OverrideSelector,
  type Registry,
} from '../../registry/registry.ts';
import type { NamespaceReference } from './namespace-reference.ts';
import type { OperationContext } from './operation-context.ts';

/** A maximum of overrides. */
interface Capacity {
  most: number;
  /** How many there are. */
  count: () => number;
  /** Whether an override counts. */
  includes: (override: Override) => boolean;
  error: () => ApiError;
}

/** @throws ApiError (400) where there is no place for a new override */
export function requireCapacities(
  { registry, nowMs }: OperationContext,
  reference: NamespaceReference,
  scope: string,
  selector: OverrideSelector,
): void {
  const capacities = [kindCapacity(registry, scope, selector)];
  if (selector.isBlocking !== true && hasInfix(selector.identifier)) {
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
  const isWildcard = kindOf({ ...selector, scope }) === 'wildcard';
  const [most, kind] = isWildcard
    ? [WILDCARD_OVERRIDES_MAX, 'overrides with a wildcard or a CIDR block']
    : [EXACT_OVERRIDES_MAX, 'overrides without a wildcard and blocks'];
  return {
    most,
    count: () => {
      const { exact, block, wildcard } = registry.overrideCounts;
      return isWildcard ? wildcard : exact + block;
    },
    includes: (override) => (kindOf(override) === 'wildcard') === isWildcard,
    error: () => new ApiError('BAD_REQUEST', `the maximum of ${most} ${kind} is reached`),
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
