/**
 * The operations of v1 on overrides: the fields of their requests and responses. On the main
 * thread. v1 of Unkey's API does not have import and export.
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
  field,
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
import { expiresField } from '../common/expires.ts';
import type { NamespaceReference } from '../common/namespace-reference.ts';
import type { OperationHandler } from '../common/operation-context.ts';
import {
  cidrField,
  endField,
  endOf,
  findOverride,
  liveOverrides,
  OVERRIDE_FIELDS,
  overridesInScope,
  putOverride,
  removeOverride,
  selectorOf,
  setOverride as setAndAudit,
  usageField,
} from '../common/overrides.ts';
import { pageFields, pageOf } from '../common/pages.ts';
import type { ResponseV1 } from './responses.ts';

const namespaceFields = {
  namespaceId: Type.Optional(
    field(
      text(1, NAMESPACE_MAX_CHARACTERS),
      'Id of the namespace. `namespaceId` or `namespaceName` is required; the id has precedence.',
    ),
  ),
  namespaceName: Type.Optional(
    field(
      text(1, NAMESPACE_MAX_CHARACTERS),
      'Name of the namespace, or a pattern of names with `*`. It must not begin with `rlns_`.',
    ),
  ),
};

/** v1 sets no short identifiers and no limit of 0, which an import accepts since v2 sets them. */
const overrideSchema = (identifierMin: number, limitMin: number) => {
  const fields = {
    identifier: field(text(identifierMin, IDENTIFIER_MAX_CHARACTERS), OVERRIDE_FIELDS.identifier),
    limit: field(integer(limitMin, AMOUNT_MAX), OVERRIDE_FIELDS.limit),
    duration: field(milliseconds(DURATION_MIN_MS, DURATION_MAX_MS), OVERRIDE_FIELDS.duration),
    ...namespaceFields,
    async: Type.Optional(
      field(flag(), '`true` makes the checks to which the override applies asynchronous.', false),
    ),
    cidr: Type.Optional(field(flag(), OVERRIDE_FIELDS.cidr, false)),
    expires: Type.Optional(expiresField(OVERRIDE_FIELDS.expires)),
  };
  return Type.Object(fields, JSON_OBJECT);
};
/** The identifier or pattern exactly as it was set. */
const overrideSelectorFields = {
  ...namespaceFields,
  identifier: field(text(0, IDENTIFIER_MAX_CHARACTERS), OVERRIDE_FIELDS.selector),
  cidr: Type.Optional(field(flag(), OVERRIDE_FIELDS.selectorCidr, false)),
};

export const setValidator = createValidator(overrideSchema(OVERRIDE_IDENTIFIER_MIN_CHARACTERS, 1));
export const itemValidator = createValidator(overrideSchema(1, 0), 'an override');
export const deleteValidator = createValidator(Type.Object(overrideSelectorFields, JSON_OBJECT));
const usageFields = { usage: Type.Optional(field(flag(), OVERRIDE_FIELDS.usage, false)) };
export const getValidator = createValidator(
  Type.Object({ ...overrideSelectorFields, ...usageFields }, QUERY),
);
export const listValidator = createValidator(
  Type.Object({ ...namespaceFields, ...pageFields(PAGE_MAX), ...usageFields }, QUERY),
);
export const exportValidator = createValidator(
  Type.Object({ ...pageFields(EXPORT_PAGE_MAX), ...usageFields }, QUERY),
);
export const importValidator = createValidator(
  Type.Object(
    {
      // Validated one by one, for errors with the index of the item.
      overrides: field(
        Type.Array(Type.Unknown(), { accepts: 'an array of overrides' }),
        'The overrides to set. All of them are set, or none.',
      ),
      dryRun: Type.Optional(
        field(flag(), '`true` validates and counts, but changes nothing.', false),
      ),
    },
    JSON_OBJECT,
  ),
);

export const setOverride: OperationHandler<ResponseV1<'ratelimits.setOverride'>> = (
  context,
  input,
) => {
  const body = context.validate(setValidator, input);
  const reference = namespaceReferenceOf(body);
  const override = setAndAudit(context, reference, selectorOf(body), overrideValuesOf(body));
  return { overrideId: override.id };
};

export const getOverride: OperationHandler<ResponseV1<'ratelimits.getOverride'>> = (
  context,
  input,
) => {
  const query = context.validate(getValidator, input);
  const override = findOverride(context, namespaceReferenceOf(query), selectorOf(query));
  return { ...toResponseItem(override), ...usageField(context, query.usage, override) };
};

export const deleteOverride: OperationHandler<ResponseV1<'ratelimits.deleteOverride'>> = (
  context,
  input,
) => {
  const body = context.validate(deleteValidator, input);
  removeOverride(context, namespaceReferenceOf(body), selectorOf(body));
  return {};
};

export const listOverrides: OperationHandler<ResponseV1<'ratelimits.listOverrides'>> = (
  context,
  input,
) => {
  const query = context.validate(listValidator, input);
  const overrides = overridesInScope(context, namespaceReferenceOf(query));
  const { items, rest } = pageOf(overrides, query, PAGE_MAX);
  const listed = items.map((override) => {
    return { ...toResponseItem(override), ...usageField(context, query.usage, override) };
  });
  return { overrides: listed, ...rest };
};

/** All overrides of all namespaces, each in the form that an import accepts. */
export const exportOverrides: OperationHandler<ResponseV1<'ratelimits.exportOverrides'>> = (
  context,
  input,
) => {
  const { registry, permissions, validate } = context;
  const query = validate(exportValidator, input);
  permissions.require('read_override', undefined);
  const { items, rest } = pageOf(
    liveOverrides(context, registry.overrides()),
    query,
    EXPORT_PAGE_MAX,
  );
  const overrides = items.map((override) => {
    const { id: _, ...fields } = toResponseItem(override);
    const namespaceName = registry.namespaceOf(override);
    // An import would read the name of a namespace that contains a star as a pattern.
    const isAmbiguous = isPattern(namespaceName) && !isPattern(override.scope);
    const usage = usageField(context, query.usage, override);
    const owner = isAmbiguous ? { namespaceId: override.scope } : { namespaceName };
    return { ...owner, ...fields, ...usage };
  });
  return { overrides, ...rest };
};

/** Sets many overrides, all or none. */
export const importOverrides: OperationHandler<ResponseV1<'ratelimits.importOverrides'>> = (
  context,
  input,
) => {
  const { overrides, dryRun = false } = context.validate(importValidator, input);
  const counts = { created: 0, updated: 0, unchanged: 0 };
  const { registry } = context;
  const { journalLength } = registry;
  const bodies = overrides.map((item, i) =>
    withItemIndex(i, () => context.validate(itemValidator, item)),
  );
  const changedNamespaces = new Set<string>();
  bodies.forEach((body, i) => {
    const put = () =>
      putOverride(context, namespaceReferenceOf(body), selectorOf(body), overrideValuesOf(body));
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

type SetBody = Static<ReturnType<typeof overrideSchema>>;

function overrideValuesOf({
  limit,
  duration: durationMs,
  async: isAsync = false,
  ...body
}: SetBody) {
  return { limit, durationMs, isAsync, ...endOf(body) };
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

function toResponseItem(override: Override) {
  const { id, identifier, limit, durationMs, isAsync } = override;
  const values = { limit, duration: durationMs, async: isAsync, ...endField(override) };
  return { id, identifier, ...cidrField(override), ...values };
}

/** Adds the index of the item to the errors of an import. */
function withItemIndex<T>(index: number, action: () => T): T {
  try {
    return action();
  } catch (error) {
    throw error instanceof ApiError ? error.forListItem('overrides', index) : error;
  }
}
