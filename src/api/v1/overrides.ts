/**
 * The operations of v1 on overrides and namespaces: what each takes and how its answer looks.
 * Import, export and the list of namespaces are weir's own. On the main thread.
 */

import Type, { type Static } from 'typebox';
import { overridesImport } from '../../audit/entries.ts';
import { ApiError } from '../../errors.ts';
import {
  AMOUNT_MAX,
  DURATION_MAX_MS,
  DURATION_MIN_MS,
  EXPORT_PAGE_MAX,
  IDENTIFIER_MAX_CHARACTERS,
  NAMESPACE_MAX_CHARACTERS,
  OVERRIDE_IDENTIFIER_MIN_CHARACTERS,
  PAGE_MAX,
} from '../../limits.ts';
import { isPattern } from '../../overrides/pattern.ts';
import type { Override } from '../../registry/registry.ts';
import type { NamesNamespace } from '../named.ts';
import {
  findOverride,
  overridesOf,
  putOverride,
  removeOverride,
  setOverride as setAndAudit,
} from '../overrides.ts';
import { pageFields, pageOf } from '../pages.ts';
import { bodyReader, flag, integer, milliseconds, text } from '../schema.ts';
import type { Handler } from '../service.ts';

const namespaceFields = {
  namespaceId: Type.Optional(text(1, NAMESPACE_MAX_CHARACTERS)),
  namespaceName: Type.Optional(text(1, NAMESPACE_MAX_CHARACTERS)),
};
/** The text of an identifier or of a pattern, to find an override by. */
const identifierText = () => text(0, IDENTIFIER_MAX_CHARACTERS);
const JSON_OBJECT = { takes: 'a JSON object' };
const QUERY = { takes: 'a query' };

/** v1 has no short identifiers and no limit of 0; an import takes what v2 has set as well. */
const override = (identifierMin: number, limitMin: number) => {
  const fields = {
    identifier: text(identifierMin, IDENTIFIER_MAX_CHARACTERS),
    limit: integer(limitMin, AMOUNT_MAX),
    duration: milliseconds(DURATION_MIN_MS, DURATION_MAX_MS),
    ...namespaceFields,
    async: Type.Optional(flag()),
  };
  return Type.Object(fields, JSON_OBJECT);
};
const One = { ...namespaceFields, identifier: identifierText() };

const setReader = bodyReader(override(OVERRIDE_IDENTIFIER_MIN_CHARACTERS, 1));
const itemReader = bodyReader(override(1, 0), 'an override');
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
  const body = setReader.read(input);
  return { overrideId: setAndAudit(job, namespaceOf(body), body.identifier, fieldsOf(body)).id };
};

export const getOverride: Handler = (job, input) => {
  const asked = getReader.read(input);
  return shown(findOverride(job, namespaceOf(asked), asked.identifier));
};

export const deleteOverride: Handler = (job, input) => {
  const asked = deleteReader.read(input);
  removeOverride(job, namespaceOf(asked), asked.identifier);
  return {};
};

export const listOverrides: Handler = (job, input) => {
  const asked = listReader.read(input);
  const { items, rest } = pageOf(overridesOf(job, namespaceOf(asked)), asked, PAGE_MAX);
  return { overrides: items.map(shown), ...rest };
};

/** All overrides of all namespaces, each as an import takes it. */
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
  const { registry } = job;
  const { mark } = registry;
  const bodies = overrides.map((item, i) => inItem(i, () => itemReader.read(item)));
  const changed = new Set<string>();
  bodies.forEach((body, i) => {
    const put = () => putOverride(job, namespaceOf(body), body.identifier, fieldsOf(body));
    const { override, before } = inItem(i, put);
    if (override === before) {
      done.unchanged++;
      return;
    }
    done[before === undefined ? 'created' : 'updated']++;
    changed.add(registry.namespaceOf(override));
  });
  if (dryRun) registry.rollBack(mark);
  else if (changed.size > 0) job.audit(overridesImport(changed, done));
  return { ...done, dryRun };
};

export const listNamespaces: Handler = ({ registry, permissions }, input) => {
  const asked = namespacesReader.read(input);
  if (!permissions.maySomewhere('read_namespace')) permissions.require('read_namespace', undefined);
  const visible = registry.namespaces().filter(({ id }) => permissions.may('read_namespace', id));
  const { items, rest } = pageOf(visible, asked, PAGE_MAX);
  return { namespaces: items.map(({ id, name }) => ({ id, name })), ...rest };
};

type SetBody = Static<typeof setReader.schema>;

function fieldsOf({ limit, duration: durationMs, async: isAsync = false }: SetBody) {
  return { limit, durationMs, isAsync };
}

/** Where a request names both, the id decides. */
function namespaceOf(body: Pick<SetBody, keyof typeof namespaceFields>): NamesNamespace {
  const { namespaceId: id, namespaceName: name } = body;
  if (id !== undefined) return { id };
  if (name !== undefined) return { name, field: 'namespaceName' };
  throw new ApiError('BAD_REQUEST', 'one of "namespaceId" and "namespaceName" must be given');
}

function shown({ id, identifier, limit, durationMs, isAsync }: Override) {
  return { id, identifier, limit, duration: durationMs, async: isAsync };
}

/** Says of an error in which item of an import it is. */
function inItem<T>(index: number, work: () => T): T {
  try {
    return work();
  } catch (error) {
    throw error instanceof ApiError ? error.inItem('overrides', index) : error;
  }
}
