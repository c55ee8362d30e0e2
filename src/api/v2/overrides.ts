/**
 * The operations of v2 on overrides: the fields of their requests and responses. On the main
 * thread. v2 has no asynchronous overrides: one that it sets is synchronous.
 */

import Type from 'typebox';
import {
  AMOUNT_MAX,
  DURATION_MAX_MS,
  DURATION_MIN_MS,
  IDENTIFIER_MAX_CHARACTERS,
  NAMESPACE_MAX_CHARACTERS,
  PAGE_MAX,
  V2_PAGE_DEFAULT,
} from '../../core/constants.ts';
import {
  createStrictValidator,
  field,
  flag,
  integer,
  JSON_OBJECT,
  milliseconds,
  text,
} from '../../core/schema.ts';
import type { Override } from '../../registry/registry.ts';
import { expiresField } from '../common/expires.ts';
import { parseNamespaceReference } from '../common/namespace-reference.ts';
import type { OperationHandler } from '../common/operation-context.ts';
import {
  cidrField,
  endField,
  endOf,
  findOverride,
  OVERRIDE_FIELDS,
  overridesInScope,
  removeOverride,
  selectorOf,
  setOverride,
  usageField,
} from '../common/overrides.ts';
import { pageFields, pageOf } from '../common/pages.ts';
import type { ResponseV2 } from './responses.ts';

const namespace = field(
  text(1, NAMESPACE_MAX_CHARACTERS),
  'Name or id of the namespace, or a pattern of names with `*`. A text that begins with `rlns_` ' +
    'is an id.',
);
const identifier = () => text(1, IDENTIFIER_MAX_CHARACTERS);

export const setValidator = createStrictValidator(
  Type.Object(
    {
      namespace,
      identifier: field(identifier(), OVERRIDE_FIELDS.identifier),
      limit: field(
        integer(0, AMOUNT_MAX),
        `${OVERRIDE_FIELDS.limit} 0 denies every check with a cost.`,
      ),
      duration: field(milliseconds(DURATION_MIN_MS, DURATION_MAX_MS), OVERRIDE_FIELDS.duration),
      cidr: Type.Optional(field(flag(), OVERRIDE_FIELDS.cidr, false)),
      expires: Type.Optional(expiresField(OVERRIDE_FIELDS.expires)),
    },
    JSON_OBJECT,
  ),
);
const selectorFields = {
  namespace,
  identifier: field(identifier(), OVERRIDE_FIELDS.selector),
  cidr: Type.Optional(field(flag(), OVERRIDE_FIELDS.selectorCidr, false)),
};
const usageFields = { usage: Type.Optional(field(flag(), OVERRIDE_FIELDS.usage, false)) };
export const deleteValidator = createStrictValidator(Type.Object(selectorFields, JSON_OBJECT));
export const getValidator = createStrictValidator(
  Type.Object({ ...selectorFields, ...usageFields }, JSON_OBJECT),
);
export const listValidator = createStrictValidator(
  Type.Object({ namespace, ...pageFields(PAGE_MAX, V2_PAGE_DEFAULT), ...usageFields }, JSON_OBJECT),
);

const namespaceReferenceOf = (body: { namespace: string }) =>
  parseNamespaceReference('namespace', body.namespace);

export const setOverrideV2: OperationHandler<ResponseV2<'ratelimit.setOverride'>> = (
  context,
  input,
) => {
  const body = setValidator.validate(input);
  const { limit, duration: durationMs } = body;
  const values = { limit, durationMs, isAsync: false, ...endOf(body) };
  const reference = namespaceReferenceOf(body);
  const { id: overrideId } = setOverride(context, reference, selectorOf(body), values);
  return { data: { overrideId } };
};

export const getOverrideV2: OperationHandler<ResponseV2<'ratelimit.getOverride'>> = (
  context,
  input,
) => {
  const body = getValidator.validate(input);
  const override = findOverride(context, namespaceReferenceOf(body), selectorOf(body));
  return { data: { ...toResponseItem(override), ...usageField(context, body.usage, override) } };
};

export const deleteOverrideV2: OperationHandler<ResponseV2<'ratelimit.deleteOverride'>> = (
  context,
  input,
) => {
  const body = deleteValidator.validate(input);
  removeOverride(context, namespaceReferenceOf(body), selectorOf(body));
  return { data: {} };
};

export const listOverridesV2: OperationHandler<ResponseV2<'ratelimit.listOverrides'>> = (
  context,
  input,
) => {
  const body = listValidator.validate(input);
  const overrides = overridesInScope(context, namespaceReferenceOf(body));
  const { items, rest } = pageOf(overrides, body, V2_PAGE_DEFAULT);
  const { cursor } = rest;
  const pagination = cursor === undefined ? { hasMore: false } : { hasMore: true, cursor };
  const data = items.map((override) => {
    return { ...toResponseItem(override), ...usageField(context, body.usage, override) };
  });
  return { data, pagination };
};

function toResponseItem(override: Override) {
  const { id: overrideId, identifier, limit, durationMs: duration } = override;
  const values = { limit, duration, ...endField(override) };
  return { overrideId, identifier, ...cidrField(override), ...values };
}
