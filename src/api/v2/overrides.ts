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
  V2_PAGE,
} from '../../limits.ts';
import type { Override } from '../../registry/registry.ts';
import { idOrName } from '../named.ts';
import { findOverride, overridesOf, removeOverride, setOverride } from '../overrides.ts';
import { pageFields, pageOf } from '../pages.ts';
import { integer, milliseconds, strictReader, text } from '../schema.ts';
import type { Handler } from '../service.ts';

const JSON_OBJECT = { takes: 'a JSON object' };
const namespace = text(1, NAMESPACE_MAX_CHARACTERS);
const One = { namespace, identifier: text(1, IDENTIFIER_MAX_CHARACTERS) };

const setReader = strictReader(
  Type.Object(
    {
      ...One,
      limit: integer(0, AMOUNT_MAX),
      duration: milliseconds(DURATION_MIN_MS, DURATION_MAX_MS),
    },
    JSON_OBJECT,
  ),
);
const oneReader = strictReader(Type.Object(One, JSON_OBJECT));
const listReader = strictReader(Type.Object({ namespace, ...pageFields(PAGE_MAX) }, JSON_OBJECT));

const scopeOf = (body: { namespace: string }) => idOrName('namespace', body.namespace);

export const setOverrideV2: Handler = (job, input) => {
  const body = setReader.read(input);
  const { identifier, limit, duration: durationMs } = body;
  const said = { limit, durationMs, isAsync: false };
  const { id: overrideId } = setOverride(job, scopeOf(body), identifier, said);
  return { data: { overrideId } };
};

export const getOverrideV2: Handler = (job, input) => {
  const asked = oneReader.read(input);
  return { data: shown(findOverride(job, scopeOf(asked), asked.identifier)) };
};

export const deleteOverrideV2: Handler = (job, input) => {
  const asked = oneReader.read(input);
  removeOverride(job, scopeOf(asked), asked.identifier);
  return { data: {} };
};

export const listOverridesV2: Handler = (job, input) => {
  const asked = listReader.read(input);
  const { items, rest } = pageOf(overridesOf(job, scopeOf(asked)), asked, V2_PAGE);
  const { cursor } = rest;
  const pagination = cursor === undefined ? { hasMore: false } : { hasMore: true, cursor };
  return { data: items.map(shown), pagination };
};

function shown({ id: overrideId, identifier, limit, durationMs: duration }: Override) {
  return { overrideId, identifier, limit, duration };
}
