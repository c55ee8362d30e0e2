/**
 * The operations on overrides and namespaces: what each takes, who may do it, and what it does to
 * the registry. On the main thread. Failures are ApiErrors, in the order 400, 403, 404; one that is
 * thrown in the middle is taken back by whoever called.
 */

import Type, { type Static } from 'typebox';
import { makeId } from '../auth/keys.ts';
import type { NamespaceAction } from '../auth/permissions.ts';
import { ApiError } from '../errors.ts';
import {
  AMOUNT_MAX,
  DURATION_MAX_MS,
  DURATION_MIN_MS,
  EXACT_OVERRIDES_MAX,
  EXPORT_PAGE_MAX,
  IDENTIFIER_MAX_CHARACTERS,
  NAMESPACE_MAX_CHARACTERS,
  NAMESPACES_MAX,
  OVERRIDE_IDENTIFIER_MIN_CHARACTERS,
  PAGE_MAX,
  STARS_MAX,
  WILDCARD_OVERRIDES_MAX,
} from '../limits.ts';
import { countStars, isPattern } from '../overrides/pattern.ts';
import type { Override, Registry } from '../registry/registry.ts';
import {
  type NamesNamespace,
  noNamespace,
  requireName,
  tooManyNamespaces,
  unknownNamespace,
} from './named.ts';
import { pageFields, pageOf } from './pages.ts';
import { bodyReader, flag, integer, text } from './schema.ts';
import type { Handler, Job } from './service.ts';

const OVERRIDE_ID_PREFIX = 'rlor_';

const namespaceFields = {
  namespaceId: Type.Optional(text(1, NAMESPACE_MAX_CHARACTERS)),
  namespaceName: Type.Optional(text(1, NAMESPACE_MAX_CHARACTERS)),
};
/** The text of an identifier or of a pattern, to find an override by. */
const identifierText = () => text(0, IDENTIFIER_MAX_CHARACTERS);
const JSON_OBJECT = { takes: 'a JSON object' };
const QUERY = { takes: 'a query' };

const SetOverride = Type.Object(
  {
    identifier: text(OVERRIDE_IDENTIFIER_MIN_CHARACTERS, IDENTIFIER_MAX_CHARACTERS),
    limit: integer(1, AMOUNT_MAX),
    duration: integer(DURATION_MIN_MS, DURATION_MAX_MS),
    ...namespaceFields,
    async: Type.Optional(flag()),
  },
  JSON_OBJECT,
);
const One = { ...namespaceFields, identifier: identifierText() };

const setReader = bodyReader(SetOverride);
const itemReader = bodyReader(SetOverride, 'an override');
const deleteReader = bodyReader(Type.Object(One, JSON_OBJECT));
const getReader = bodyReader(Type.Object(One, QUERY));
const listReader = bodyReader(Type.Object({ ...namespaceFields, ...pageFields(PAGE_MAX) }, QUERY));
const exportReader = bodyReader(Type.Object(pageFields(EXPORT_PAGE_MAX), QUERY));
const namespacesReader = bodyReader(Type.Object(pageFields(PAGE_MAX), QUERY));
const importReader = bodyReader(
  Type.Object(
    {
      // Each is looked at by itself, for an error that names it.
      overrides: Type.Array(Type.Unknown(), { takes: 'an array of overrides' }),
      dryRun: Type.Optional(flag()),
    },
    JSON_OBJECT,
  ),
);

export const setOverride: Handler = (job, input) => {
  const { override } = put(job, setReader.read(input));
  return { overrideId: override.id };
};

export const getOverride: Handler = (job, input) => shown(find(job, getReader.read(input), 'read'));

export const deleteOverride: Handler = (job, input) => {
  job.registry.removeOverride(find(job, deleteReader.read(input), 'delete'));
  return {};
};

export const listOverrides: Handler = (job, input) => {
  const asked = listReader.read(input);
  const scope = scopeOf(job, asked, 'read_override');
  if (scope === undefined) throw noNamespace(asked);
  const { items, rest } = pageOf(job.registry.overridesOf(scope), asked, PAGE_MAX);
  return { overrides: items.map(shown), ...rest };
};

/** All overrides of all namespaces, each as setOverride takes it. */
export const exportOverrides: Handler = ({ registry, permissions }, input) => {
  const asked = exportReader.read(input);
  permissions.require('read_override', undefined);
  const { items, rest } = pageOf(registry.overrides(), asked, EXPORT_PAGE_MAX);
  const overrides = items.map((override) => {
    const { id: _, ...fields } = shown(override);
    const namespaceName = registry.namespaceOf(override);
    // The name of a namespace that looks like a pattern would be taken for one.
    const isAmbiguous = isPattern(namespaceName) && !isPattern(override.scope);
    return { ...(isAmbiguous ? { namespaceId: override.scope } : { namespaceName }), ...fields };
  });
  return { overrides, ...rest };
};

/** Sets many overrides, all or none. */
export const importOverrides: Handler = (job, input) => {
  const { overrides, dryRun = false } = importReader.read(input);
  const done = { created: 0, updated: 0, unchanged: 0 };
  const { mark } = job.registry;
  const bodies = overrides.map((body, i) => named(i, () => itemReader.read(body)));
  bodies.forEach((body, i) => {
    done[named(i, () => put(job, body)).outcome]++;
  });
  if (dryRun) job.registry.rollBack(mark);
  return { ...done, dryRun };
};

export const listNamespaces: Handler = ({ registry, permissions }, input) => {
  const asked = namespacesReader.read(input);
  if (!permissions.maySomewhere('read_namespace')) permissions.require('read_namespace', undefined);
  const visible = registry.namespaces().filter(({ id }) => permissions.may('read_namespace', id));
  const { items, rest } = pageOf(visible, asked, PAGE_MAX);
  return { namespaces: items.map(({ id, name }) => ({ id, name })), ...rest };
};

/** Creates an override, or replaces what it says; its id stays. */
function put(job: Job, body: Static<typeof SetOverride>) {
  const { registry, nowMs } = job;
  const { identifier, limit, duration: durationMs, async: isAsync = false } = body;
  requireFewStars('identifier', identifier);
  const scope = scopeOf(job, body, 'set_override') ?? createNamespace(job, body);
  const before = registry.override(scope, identifier);
  const change = { limit, durationMs, isAsync };
  if (before === undefined) requireRoom(registry, scope, identifier);
  else if (isSame(before, change)) return { override: before, outcome: 'unchanged' as const };
  const created = { id: makeId(OVERRIDE_ID_PREFIX), scope, identifier, createdMs: nowMs() };
  const override = { ...(before ?? created), ...change };
  registry.putOverride(override);
  return { override, outcome: before === undefined ? ('created' as const) : ('updated' as const) };
}

function isSame(before: Override, after: Pick<Override, 'limit' | 'durationMs' | 'isAsync'>) {
  const { limit, durationMs, isAsync } = before;
  return limit === after.limit && durationMs === after.durationMs && isAsync === after.isAsync;
}

/**
 * The id of the namespace, or the pattern of names, that a request is about.
 * @returns undefined where no namespace has the name
 */
function scopeOf({ registry, permissions }: Job, of: NamesNamespace, action: NamespaceAction) {
  const { namespaceId, namespaceName } = of;
  if (namespaceId !== undefined) {
    permissions.require(action, namespaceId);
    if (registry.namespaceById(namespaceId) === undefined) throw noNamespace(of);
    return namespaceId;
  }
  if (namespaceName === undefined) {
    throw new ApiError('BAD_REQUEST', 'one of "namespaceId" and "namespaceName" must be given');
  }
  requireName('namespaceName', namespaceName);
  requireFewStars('namespaceName', namespaceName);
  if (isPattern(namespaceName)) {
    permissions.require(action, undefined);
    return namespaceName;
  }
  const namespace = registry.namespaceByName(namespaceName);
  permissions.requireNamed(action, namespace?.id);
  return namespace?.id;
}

function createNamespace({ registry, permissions, nowMs }: Job, of: NamesNamespace): string {
  const name = of.namespaceName!;
  if (!permissions.mayCreateNamespace) throw unknownNamespace(name);
  if (registry.namespaceCount >= NAMESPACES_MAX) throw tooManyNamespaces();
  return registry.addNamespace(name, nowMs()).id;
}

function find(job: Job, asked: NamesNamespace & { identifier: string }, action: 'read' | 'delete') {
  const scope = scopeOf(job, asked, `${action}_override`);
  if (scope === undefined) throw noNamespace(asked);
  const override = job.registry.override(scope, asked.identifier);
  if (override !== undefined) return override;
  throw new ApiError(
    'NOT_FOUND',
    `there is no override of ${JSON.stringify(asked.identifier)} in that namespace`,
  );
}

function requireFewStars(field: string, pattern: string): void {
  const stars = countStars(pattern);
  if (stars <= STARS_MAX) return;
  throw new ApiError(
    'BAD_REQUEST',
    `"${field}" must have at most ${STARS_MAX} wildcards "*", got ${stars}`,
  );
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

function shown({ id, identifier, limit, durationMs, isAsync }: Override) {
  return { id, identifier, limit, duration: durationMs, async: isAsync };
}

/** Says of an error in which item of an import it is. */
function named<T>(index: number, work: () => T): T {
  try {
    return work();
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    throw new ApiError(error.code, `overrides[${index}]: ${error.message}`);
  }
}
