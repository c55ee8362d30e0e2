/**
 * The operations of v1 on overrides and namespaces: the fields of their requests and responses. On
 * the main thread. v1 of Unkey's API does not have import, export and the list of namespaces.
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
import {
  createValidator,
  flag,
  integer,
  JSON_OBJECT,
  milliseconds,
  QUERY,
  text,
} from '../../core/schema.ts';
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

/** v1 sets no short identifiers and no limit of 0, which an import accepts since v2 sets them. */
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
/** The identifier or pattern exactly as it was set. */
const overrideSelectorFields = {
  ...namespaceFields,
  identifier: text(0, IDENTIFIER_MAX_CHARACTERS),
};

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
      // Validated one by one, for errors with the index of the item.
      overrides: Type.Array(Type.Unknown(), { accepts: 'an array of overrides' }),
      dryRun: Type.Optional(flag()),
    },
    JSON_OBJECT,
  ),
);

export const setOverride: OperationHandler = (context, input) => {
  const body = setValidator.validate(input);
  const reference = namespaceReferenceOf(body);
  const override = setAndAudit(context, reference, body.identifier, overrideValuesOf(body));
  return { overrideId: override.id };
};

export const getOverride: OperationHandler = (context, input) => {
  const query = getValidator.validate(input);
  return toResponseItem(findOverride(context, namespaceReferenceOf(query), query.identifier));
};

export const deleteOverride: OperationHandler = (context, input) => {
  const body = deleteValidator.validate(input);
  removeOverride(context, namespaceReferenceOf(body), body.identifier);
  return {};
};

export const listOverrides: OperationHandler = (context, input) => {
  const query = listValidator.validate(input);
  const overrides = overridesInScope(context, namespaceReferenceOf(query));
  const { items, rest } = pageOf(overrides, query, PAGE_MAX);
  return { overrides: items.map(toResponseItem), ...rest };
};

/** All overrides of all namespaces, each in the form that an import accepts. */
export const exportOverrides: OperationHandler = ({ registry, permissions }, input) => {
  const query = exportValidator.validate(input);
  permissions.require('read_override', undefined);
  const { items, rest } = pageOf(registry.overrides(), query, EXPORT_PAGE_MAX);
  const overrides = items.map((override) => {
    const { id: _, ...fields } = toResponseItem(override);
    const namespaceName = registry.namespaceOf(override);
    // An import would read the name of a namespace that contains a star as a pattern.
    const isAmbiguous = isPattern(namespaceName) && !isPattern(override.scope);
    return { ...(isAmbiguous ? { namespaceId: override.scope } : { namespaceName }), ...fields };
  });
  return { overrides, ...rest };
};

/** Sets many overrides, all or none. */
export const importOverrides: OperationHandler = (context, input) => {
  const { overrides, dryRun = false } = importValidator.validate(input);
  const counts = { created: 0, updated: 0, unchanged: 0 };
  const { registry } = context;
  const { journalLength } = registry;
  const bodies = overrides.map((item, i) => withItemIndex(i, () => itemValidator.validate(item)));
  const changedNamespaces = new Set<string>();
  bodies.forEach((body, i) => {
    const put = () =>
      putOverride(context, namespaceReferenceOf(body), body.identifier, overrideValuesOf(body));
    const { override, before } = withItemIndex(i, put);
    if (override === before) {
      counts.unchanged++;
      return;
    }
    counts[before === undefined ? 'created' : 'updated']++;
    changedNamespaces.add(registry.namespaceOf(override));
  });
  if (dryRun) registry.rollBack(journalLength);
  else if (changedNamespaces.size > 0) {
    context.audit(overridesImport(changedNamespaces, counts));
  }
  return { ...counts, dryRun };
};

export const listNamespaces: OperationHandler = ({ registry, permissions }, input) => {
  const query = namespacesValidator.validate(input);
  if (!permissions.mayInSomeNamespace('read_namespace'))
    permissions.require('read_namespace', undefined);
  const visible = registry.namespaces().filter(({ id }) => permissions.may('read_namespace', id));
  const { items, rest } = pageOf(visible, query, PAGE_MAX);
  return { namespaces: items.map(({ id, name }) => ({ id, name })), ...rest };
};

type SetBody = Static<ReturnType<typeof overrideSchema>>;

function overrideValuesOf({ limit, duration: durationMs, async: isAsync = false }: SetBody) {
  return { limit, durationMs, isAsync };
}

/** In a request with both, the id has precedence. */
function namespaceReferenceOf(
  body: Pick<SetBody, keyof typeof namespaceFields>,
): NamespaceReference {
  const { namespaceId: id, namespaceName: name } = body;
  if (id !== undefined) return { id };
  if (name !== undefined) return { name, field: 'namespaceName' };
  throw new ApiError('BAD_REQUEST', '"namespaceId" or "namespaceName" is required');
}

function toResponseItem({ id, identifier, limit, durationMs, isAsync }: Override) {
  return { id, identifier, limit, duration: durationMs, async: isAsync };
}

/** Adds the index of the item to the errors of an import. */
function withItemIndex<T>(index: number, action: () => T): T {
  try {
    return action();
  } catch (error) {
    throw error instanceof ApiError ? error.forListItem('overrides', index) : error;
  }
}
