/**
 * What is done to overrides, whatever the version that asks: who may do it, and what it does to the
 * registry. On the main thread. Failures are ApiErrors, in the order 400, 403, 404; one that is
 * thrown in the middle is taken back by whoever called.
 */

import { namespaceCreation, overrideChange } from '../audit/entries.ts';
import type { NamespaceAction } from '../auth/permissions.ts';
import { ApiError } from '../errors.ts';
import {
  EXACT_OVERRIDES_MAX,
  NAMESPACES_MAX,
  STARS_MAX,
  WILDCARD_OVERRIDES_MAX,
} from '../limits.ts';
import { makeOverrideId } from '../overrides/id.ts';
import { countStars, isPattern } from '../overrides/pattern.ts';
import type { Override, Registry } from '../registry/registry.ts';
import {
  type NamesNamespace,
  noNamespace,
  requireName,
  tooManyNamespaces,
  unknownNamespace,
} from './named.ts';
import type { Job } from './service.ts';

/** What an override says. */
type Said = Pick<Override, 'limit' | 'durationMs' | 'isAsync'>;

/** Creates an override, or replaces what it says; its id stays. With entries in the audit log. */
export function setOverride(job: Job, of: NamesNamespace, identifier: string, said: Said) {
  const { override, before, newNamespace } = putOverride(job, of, identifier, said);
  if (newNamespace !== undefined) job.audit(namespaceCreation(newNamespace));
  if (override !== before) job.audit(overrideChange(job.registry, before, override));
  return override;
}

/** The same for an import, which has one entry for all that it does. */
export function putOverride(job: Job, of: NamesNamespace, identifier: string, said: Said) {
  const { registry, nowMs } = job;
  requireFewStars('identifier', identifier);
  const known = scopeOf(job, of, 'set_override');
  const newNamespace = known === undefined ? createNamespace(job, of) : undefined;
  const scope = known ?? newNamespace!.id;
  const before = registry.override(scope, identifier);
  if (before === undefined) requireRoom(registry, scope, identifier);
  else if (isSame(before, said)) return { override: before, before, newNamespace };
  const created = { id: makeOverrideId(), scope, identifier, createdMs: nowMs() };
  const override = registry.putOverride({ ...(before ?? created), ...said });
  return { override, before, newNamespace };
}

export function removeOverride(job: Job, of: NamesNamespace, identifier: string): void {
  const override = findOverride(job, of, identifier, 'delete_override');
  job.registry.removeOverride(override);
  job.audit(overrideChange(job.registry, override, undefined));
}

/** @param identifier the text of the pattern */
export function findOverride(
  job: Job,
  of: NamesNamespace,
  identifier: string,
  action: NamespaceAction = 'read_override',
): Override {
  const scope = scopeOf(job, of, action);
  if (scope === undefined) throw noNamespace(of);
  const override = job.registry.override(scope, identifier);
  if (override !== undefined) return override;
  throw new ApiError(
    'NOT_FOUND',
    `there is no override of ${JSON.stringify(identifier)} in that namespace`,
  );
}

export function overridesOf(job: Job, of: NamesNamespace): Iterable<Override> {
  const scope = scopeOf(job, of, 'read_override');
  if (scope === undefined) throw noNamespace(of);
  return job.registry.overridesOf(scope);
}

function isSame(before: Override, { limit, durationMs, isAsync }: Said): boolean {
  if (before.limit !== limit || before.durationMs !== durationMs) return false;
  return before.isAsync === isAsync;
}

/**
 * The id of the namespace, or the pattern of names, that a request is about.
 * @returns undefined where no namespace has the name
 */
function scopeOf({ registry, permissions }: Job, of: NamesNamespace, action: NamespaceAction) {
  if ('id' in of) {
    permissions.require(action, of.id);
    if (registry.namespaceById(of.id) === undefined) throw noNamespace(of);
    return of.id;
  }
  const { name, field } = of;
  requireName(field, name);
  requireFewStars(field, name);
  if (isPattern(name)) {
    permissions.require(action, undefined);
    return name;
  }
  const namespace = registry.namespaceByName(name);
  permissions.requireNamed(action, namespace?.id);
  return namespace?.id;
}

function createNamespace({ registry, permissions, nowMs }: Job, of: NamesNamespace) {
  if ('id' in of) throw new Error('a namespace is not created by its id');
  if (!permissions.mayCreateNamespace) throw unknownNamespace(of.name);
  if (registry.namespaceCount >= NAMESPACES_MAX) throw tooManyNamespaces();
  return registry.addNamespace(of.name, nowMs());
}

function requireFewStars(field: string, pattern: string): void {
  const stars = countStars(pattern);
  if (stars <= STARS_MAX) return;
  const takes = `at most ${STARS_MAX} wildcards "*"`;
  throw new ApiError('BAD_REQUEST', `"${field}" must have ${takes}; got ${stars}`, {
    location: `body.${field}`,
    fix: `give ${takes}`,
  });
}

function requireRoom(registry: Registry, scope: string, identifier: string): void {
  const { exact, wildcard } = registry.overrideCounts;
  const isWildcard = isPattern(scope) || isPattern(identifier);
  const [count, most, kind] = isWildcard
    ? ([wildcard, WILDCARD_OVERRIDES_MAX, 'with a wildcard'] as const)
    : ([exact, EXACT_OVERRIDES_MAX, 'without a wildcard'] as const);
  if (count < most) return;
  throw new ApiError(
    'BAD_REQUEST',
    `there are ${most} overrides ${kind} already, which is the most that weir keeps`,
  );
}
