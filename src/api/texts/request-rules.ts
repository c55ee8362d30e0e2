/**
 * Rules of requests as JSON Schema, for the documentation. A server checks these rules by
 * functions, after the schema of the request.
 */

import Type, { type TSchema } from 'typebox';
import { CREATE_NAMESPACE, GLOBAL_PERMISSIONS, NAMESPACE_ACTIONS } from '../../auth/permissions.ts';
import { NAMESPACE_ID_PREFIX } from '../../core/constants.ts';

const ONLY_GCRA = { required: ['algorithm'], properties: { algorithm: { const: 'gcra' } } };

/** The alternatives of each rule; a body satisfies one of each. */
type Rules = readonly { anyOf: readonly object[] }[];

/**
 * Within `allOf`, generators of clients add the alternatives to the fields. Beside them, some take
 * each alternative as a type of its own.
 */
function withRule<S extends TSchema>(schema: S, anyOf: readonly object[]): S {
  const { allOf = [] } = schema as { allOf?: Rules };
  return { ...schema, allOf: [...allOf, { anyOf }] };
}

/** One of both fields is required. In the query of a GET only the description says so. */
export function requireNamespace<S extends TSchema>(schema: S): S {
  return withRule(schema, [{ required: ['namespaceId'] }, { required: ['namespaceName'] }]);
}

export function requireGcraForBurst<S extends TSchema>(schema: S): S {
  return withRule(schema, [{ properties: { burst: false } }, ONLY_GCRA]);
}

/** Both fields, or none of them. */
export function requireLimitWithDuration<S extends TSchema>(schema: S): S {
  const neither = { properties: { limit: false, duration: false } };
  return withRule(schema, [{ required: ['limit', 'duration'] }, neither]);
}

export function requireResetUnlessGcra<S extends TSchema>(schema: S): S {
  return withRule(schema, [{ required: ['reset'] }, ONLY_GCRA]);
}

/** The items of an array that a function validates one by one. */
export function describeItems(schema: TSchema, field: string, items: TSchema): TSchema {
  const { properties } = schema as TSchema & { properties: Record<string, TSchema> };
  const array = { ...properties[field], items };
  return { ...schema, properties: { ...properties, [field]: array } } as TSchema;
}

/** @param schema of a body with the field "permissions" */
export function describePermissions(schema: TSchema): TSchema {
  return describeItems(schema, 'permissions', Type.String({ pattern: permissionPattern() }));
}

function permissionPattern(): string {
  const global = [CREATE_NAMESPACE, ...GLOBAL_PERMISSIONS].map(escaped);
  const namespace = `(\\*|${NAMESPACE_ID_PREFIX}[^.]*)`;
  const inNamespace = `ratelimit\\.${namespace}\\.(${NAMESPACE_ACTIONS.join('|')})`;
  return `^(\\*|${global.join('|')}|${inNamespace})$`;
}

function escaped(text: string): string {
  return text.replace(/[.*]/g, '\\$&');
}
