/**
 * The operations of v2 on overrides: what each takes and how its answer looks. On the main thread.
 * v2 does not know asynchronous overrides: one that it sets is none.
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
import { createStrictValidator, integer, milliseconds, text } from '../../core/schema.ts';
import type { Override } from '../../registry/registry.ts';
import { parseNamespaceReference } from '../common/namespace-reference.ts';
import type { OperationHandler } from '../common/operation-context.ts';
import {
  findOverride,
  overridesInScope,
  removeOverride,
  setOverride,
} from '../common/overrides.ts';
import { pageFields, pageOf } from '../common/pages.ts';

const JSON_OBJECT = { takes: 'a JSON object' };
const namespace = text(1, NAMESPACE_MAX_CHARACTERS);
const overrideSelectorFields = { namespace, identifier: text(1, IDENTIFIER_MAX_CHARACTERS) };

const setValidator = createStrictValidator(
  Type.Object(
    {
      ...overrideSelectorFields,
      limit: integer(0, AMOUNT_MAX),
      duration: milliseconds(DURATION_MIN_MS, DURATION_MAX_MS),
    },
    JSON_OBJECT,
  ),
);
const selectorValidator = createStrictValidator(Type.Object(overrideSelectorFields, JSON_OBJECT));
const listValidator = createStrictValidator(
  Type.Object({ namespace, ...pageFields(PAGE_MAX) }, JSON_OBJECT),
);

const namespaceReferenceOf = (body: { namespace: string }) =>
  parseNamespaceReference('namespace', body.namespace);

export const setOverrideV2: OperationHandler = (job, input) => {
  const body = setValidator.validate(input);
  const { identifier, limit, duration: durationMs } = body;
  const said = { limit, durationMs, isAsync: false };
  const { id: overrideId } = setOverride(job, namespaceReferenceOf(body), identifier, said);
  return { data: { overrideId } };
};

export const getOverrideV2: OperationHandler = (job, input) => {
  const asked = selectorValidator.validate(input);
  return { data: toResponseItem(findOverride(job, namespaceReferenceOf(asked), asked.identifier)) };
};

export const deleteOverrideV2: OperationHandler = (job, input) => {
  const asked = selectorValidator.validate(input);
  removeOverride(job, namespaceReferenceOf(asked), asked.identifier);
  return { data: {} };
};

export const listOverridesV2: OperationHandler = (job, input) => {
  const asked = listValidator.validate(input);
  const { items, rest } = pageOf(
    overridesInScope(job, namespaceReferenceOf(asked)),
    asked,
    V2_PAGE_DEFAULT,
  );
  const { cursor } = rest;
  const pagination = cursor === undefined ? { hasMore: false } : { hasMore: true, cursor };
  return { data: items.map(toResponseItem), pagination };
};

function toResponseItem({ id: overrideId, identifier, limit, durationMs: duration }: Override) {
  return { overrideId, identifier, limit, duration };
}
