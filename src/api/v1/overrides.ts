/**
 * The operations of v1 on overrides and namespaces: what each takes and how its answer looks.
 * Import, export and the list of namespaces are weir's own. On the main thread.
 */

import Type, { type Static } from 'typebox';
import {
  AMOUNT_MAX,
  DURATION_MAX_MS,
  DURATION_MIN_MS,
  EXPORT_PAGE_MAX,
  IDENTIFIER_MAX_CHARACTERS,
  NAMESPACE_MAX_CHARACTERS,
  OVERRIDE_IDENTIFIER_MIN_CHARACTERS,
  PAGE_MAX,
} from '../../core/constants.ts';
import { ApiError } from '../../core/errors.ts';
import { createValidator, flag, integer, milliseconds, text } from '../../core/schema.ts';
import { isPattern } from '../../overrides/pattern.ts';
import { overridesImport } from '../../registry/audit-entries.ts';
import type { Override } from '../../registry/registry.ts';
import type { NamespaceReference } from '../common/namespace-reference.ts';
import type { OperationHandler } from '../common/operation-context.ts';
import {
  findOverride,
  overridesInScope,
  putOverride,
  removeOverride,
  setOverride as setAndAudit,
} from '../common/overrides.ts';
import { pageFields, pageOf } from '../common/pages.ts';

const namespaceFields = {
  namespaceId: Type.Optional(text(1, NAMESPACE_MAX_CHARACTERS)),
  namespaceName: Type.Optional(text(1, NAMESPACE_MAX_CHARACTERS)),
};
/** The text of an identifier or of a pattern, to find an override by. */
const identifierText = () => text(0, IDENTIFIER_MAX_CHARACTERS);
const JSON_OBJECT = { takes: 'a JSON object' };
const QUERY = { takes: 'a query' };

/** v1 has no short identifiers and no limit of 0; an import takes what v2 has set as well. */
const overrideSchema = (identifierMin: number, limitMin: number) => {
  const fields = {
    identifier: text(identifierMin, IDENTIFIER_MAX_CHARACTERS),
    limit: integer(limitMin, AMOUNT_MAX),
    duration: milliseconds(DURATION_MIN_MS, DURATION_MAX_MS),
    ...namespaceFields,
    async: Type.Optional(flag()),
  };
  return Type.Object(fields, JSON_OBJECT);
};
const overrideSelectorFields = { ...namespaceFields, identifier: identifierText() };

const setValidator = createValidator(overrideSchema(OVERRIDE_IDENTIFIER_MIN_CHARACTERS, 1));
const itemValidator = createValidator(overrideSchema(1, 0), 'an override');
const deleteValidator = createValidator(Type.Object(overrideSelectorFields, JSON_OBJECT));
const getValidator = createValidator(Type.Object(overrideSelectorFields, QUERY));
const listValidator = createValidator(
  Type.Object({ ...namespaceFields, ...pageFields(PAGE_MAX) }, QUERY),
);
const exportValidator = createValidator(Type.Object(pageFields(EXPORT_PAGE_MAX), QUERY));
const namespacesValidator = createValidator(Type.Object(pageFields(PAGE_MAX), QUERY));
const importValidator = createValidator(
  Type.Object(
    {
      // Each is looked at by itself, for an error that names it.
      overrides: Type.Array(Type.Unknown(), { takes: 'an array of overrides' }),
      dryRun: Type.Optional(flag()),
    },
    JSON_OBJECT,
  ),
);

export const setOverride: OperationHandler = (job, input) => {
  const body = setValidator.validate(input);
  return {
    overrideId: setAndAudit(
      job,
      namespaceReferenceOf(body),
      body.identifier,
      overrideValuesOf(body),
    ).id,
  };
};

export const getOverride: OperationHandler = (job, input) => {
  const asked = getValidator.validate(input);
  return toResponseItem(findOverride(job, namespaceReferenceOf(asked), asked.identifier));
};

export const deleteOverride: OperationHandler = (job, input) => {
  const asked = deleteValidator.validate(input);
  removeOverride(job, namespaceReferenceOf(asked), asked.identifier);
  return {};
};

export const listOverrides: OperationHandler = (job, input) => {
  const asked = listValidator.validate(input);
  const { items, rest } = pageOf(
    overridesInScope(job, namespaceReferenceOf(asked)),
    asked,
    PAGE_MAX,
  );
  return { overrides: items.map(toResponseItem), ...rest };
};

/** All overrides of all namespaces, each as an import takes it. */
export const exportOverrides: OperationHandler = ({ registry, permissions }, input) => {
  const asked = exportValidator.validate(input);
  permissions.require('read_override', undefined);
  const { items, rest } = pageOf(registry.overrides(), asked, EXPORT_PAGE_MAX);
  const overrides = items.map((override) => {
    const { id: _, ...fields } = toResponseItem(override);
    const namespaceName = registry.namespaceOf(override);
    // The name of a namespace that looks like a pattern would be taken for one.
    const isAmbiguous = isPattern(namespaceName) && !isPattern(override.scope);
    return { ...(isAmbiguous ? { namespaceId: override.scope } : { namespaceName }), ...fields };
  });
  return { overrides, ...rest };
};

/** Sets many overrides, all or none. */
export const importOverrides: OperationHandler = (job, input) => {
  const { overrides, dryRun = false } = importValidator.validate(input);
  const done = { created: 0, updated: 0, unchanged: 0 };
  const { registry } = job;
  const { journalLength } = registry;
  const bodies = overrides.map((item, i) => withItemIndex(i, () => itemValidator.validate(item)));
  const changed = new Set<string>();
  bodies.forEach((body, i) => {
    const put = () =>
      putOverride(job, namespaceReferenceOf(body), body.identifier, overrideValuesOf(body));
    const { override, before } = withItemIndex(i, put);
    if (override === before) {
      done.unchanged++;
      return;
    }
    done[before === undefined ? 'created' : 'updated']++;
    changed.add(registry.namespaceOf(override));
  });
  if (dryRun) registry.rollBack(journalLength);
  else if (changed.size > 0) job.audit(overridesImport(changed, done));
  return { ...done, dryRun };
};

export const listNamespaces: OperationHandler = ({ registry, permissions }, input) => {
  const asked = namespacesValidator.validate(input);
  if (!permissions.mayInSomeNamespace('read_namespace'))
    permissions.require('read_namespace', undefined);
  const visible = registry.namespaces().filter(({ id }) => permissions.may('read_namespace', id));
  const { items, rest } = pageOf(visible, asked, PAGE_MAX);
  return { namespaces: items.map(({ id, name }) => ({ id, name })), ...rest };
};

type SetBody = Static<typeof setValidator.schema>;

function overrideValuesOf({ limit, duration: durationMs, async: isAsync = false }: SetBody) {
  return { limit, durationMs, isAsync };
}

/** Where a request names both, the id decides. */
function namespaceReferenceOf(
  body: Pick<SetBody, keyof typeof namespaceFields>,
): NamespaceReference {
  const { namespaceId: id, namespaceName: name } = body;
  if (id !== undefined) return { id };
  if (name !== undefined) return { name, field: 'namespaceName' };
  throw new ApiError('BAD_REQUEST', 'one of "namespaceId" and "namespaceName" must be given');
}

function toResponseItem({ id, identifier, limit, durationMs, isAsync }: Override) {
  return { id, identifier, limit, duration: durationMs, async: isAsync };
}

/** Says of an error in which item of an import it is. */
function withItemIndex<T>(index: number, action: () => T): T {
  try {
    return action();
  } catch (error) {
    throw error instanceof ApiError ? error.forListItem('overrides', index) : error;
  }
}
