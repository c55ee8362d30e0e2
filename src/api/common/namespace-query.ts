/** Requests of v1 that concern one namespace, which exists. A pattern of names is not accepted. */

import Type from 'typebox';
import type { NamespaceAction } from '../../auth/permissions.ts';
import { NAMESPACE_MAX_CHARACTERS } from '../../core/constants.ts';
import { ApiError } from '../../core/errors.ts';
import { field, text } from '../../core/schema.ts';
import type { StoredNamespace } from '../../registry/registry.ts';
import { namespaceNotFound } from './namespace-reference.ts';
import type { OperationContext } from './operation-context.ts';

/** @param without what a request without both fields means */
export function namespaceFields(without = 'One of the two is required.') {
  return {
    namespaceId: Type.Optional(
      field(
        text(1, NAMESPACE_MAX_CHARACTERS),
        `Id of the namespace. It has precedence over \`namespaceName\`. ${without}`,
      ),
    ),
    namespaceName: Type.Optional(
      field(text(1, NAMESPACE_MAX_CHARACTERS), 'Name of the namespace. Patterns are not accepted.'),
    ),
  };
}

export interface NamespaceQuery {
  namespaceId?: string;
  namespaceName?: string;
}

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
