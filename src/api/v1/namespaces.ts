/**
 * The operations on namespaces, on the main thread. v1 of Unkey's API does not have them. Failures
 * are ApiErrors, in the order 400, 403, 404, 409.
 */

import Type from 'typebox';
import type { NamespaceAction } from '../../auth/permissions.ts';
import { NAMESPACE_MAX_CHARACTERS, PAGE_MAX, REMOVED_OVERRIDES_MAX } from '../../core/constants.ts';
import { ApiError } from '../../core/errors.ts';
import { createValidator, field, JSON_OBJECT, QUERY, text } from '../../core/schema.ts';
import { namespaceDeletion, overridesDeletion } from '../../registry/audit-entries.ts';
import type { StoredNamespace } from '../../registry/registry.ts';
import { namespaceNotFound } from '../common/namespace-reference.ts';
import {
  type OperationContext,
  type OperationHandler,
  UnfinishedDeletion,
} from '../common/operation-context.ts';
import { pageFields, pageOf } from '../common/pages.ts';
import type { ResponseV1 } from './responses.ts';

/** The fields of a request that concerns one namespace, which exists. */
export const namespaceFields = {
  namespaceId: Type.Optional(
    field(
      text(1, NAMESPACE_MAX_CHARACTERS),
      'Id of the namespace. `namespaceId` or `namespaceName` is required; the id has precedence.',
    ),
  ),
  namespaceName: Type.Optional(
    field(text(1, NAMESPACE_MAX_CHARACTERS), 'Name of the namespace. Patterns are not accepted.'),
  ),
};

export interface NamespaceQuery {
  namespaceId?: string;
  namespaceName?: string;
}

export const listValidator = createValidator(Type.Object(pageFields(PAGE_MAX), QUERY));
export const deleteValidator = createValidator(Type.Object(namespaceFields, JSON_OBJECT));

export const listNamespaces: OperationHandler<ResponseV1<'ratelimits.listNamespaces'>> = (
  { registry, permissions, validate },
  input,
) => {
  const query = validate(listValidator, input);
  if (!permissions.mayInSomeNamespace('read_namespace'))
    permissions.require('read_namespace', undefined);
  const visible = registry.namespaces().filter(({ id }) => permissions.may('read_namespace', id));
  const { items, rest } = pageOf(visible, query, PAGE_MAX);
  return { namespaces: items.map(({ id, name }) => ({ id, name })), ...rest };
};

/**
 * Deletes a namespace with its overrides. What acceptors and analytics have follows. If there are
 * many overrides, the first ones are deleted before, in transactions of their own.
 */
export const deleteNamespace: OperationHandler<ResponseV1<'ratelimits.deleteNamespace'>> = (
  context,
  input,
  unfinished,
) => {
  const query = context.validate(deleteValidator, input);
  const { registry, gateways } = context;
  const deletedBefore = unfinished?.overrides ?? 0;
  // Another request has deleted it meanwhile.
  if (unfinished !== undefined && registry.namespaceById(unfinished.namespaceId) === undefined) {
    return { overrides: deletedBefore };
  }
  // Another namespace may have the name by now.
  const namespace = findNamespace(context, unfinished ?? query, 'delete_namespace');
  const { name } = namespace;
  const policy = `the policy of the namespace ${JSON.stringify(name)}`;
  if (gateways.policies().some((one) => one.namespace === name))
    throw new ApiError('CONFLICT', `the configuration file has ${policy}: remove it first`);
  if (registry.policy(name) !== undefined) {
    const file = 'the configuration file of another machine';
    throw new ApiError('CONFLICT', `${file} has ${policy}: remove it there first`);
  }
  const found = [...registry.overridesOf(namespace.id)];
  // Without those that are added meanwhile, which would keep this from its end.
  const left = Math.min(unfinished?.left ?? Number.POSITIVE_INFINITY, found.length);
  if (left >= REMOVED_OVERRIDES_MAX) {
    const first = found.slice(0, REMOVED_OVERRIDES_MAX);
    for (const override of first) registry.removeOverride(override);
    context.audit(overridesDeletion(new Set([name]), first.length));
    const deleted = deletedBefore + first.length;
    return new UnfinishedDeletion(namespace.id, deleted, left - REMOVED_OVERRIDES_MAX);
  }
  const overrides = deletedBefore + registry.deleteNamespace(namespace, context.nowMs());
  context.audit(namespaceDeletion(namespace, overrides));
  return { overrides };
};

/** @throws ApiError (400, 403, 404) */
export function findNamespace(
  { registry, permissions }: OperationContext,
  { namespaceId: id, namespaceName: name }: NamespaceQuery,
  action: NamespaceAction,
): StoredNamespace {
  if (id === undefined && name === undefined) {
    throw new ApiError('BAD_REQUEST', '"namespaceId" or "namespaceName" is required');
  }
  const namespace = id === undefined ? registry.namespaceByName(name!) : registry.namespaceById(id);
  permissions.requireNamed(action, namespace?.id);
  if (namespace !== undefined) return namespace;
  throw namespaceNotFound(id === undefined ? { name: name!, field: 'namespaceName' } : { id });
}
