/** What all operations say of the names of namespaces, and of those that do not exist. */

import { CREATE_NAMESPACE } from '../auth/permissions.ts';
import { describe } from '../describe.ts';
import { ApiError } from '../errors.ts';
import { NAMESPACE_ID_PREFIX, NAMESPACES_MAX } from '../limits.ts';

/** @throws ApiError (400) where a name could be taken for an id */
export function requireName(field: string, name: string): void {
  if (!name.startsWith(NAMESPACE_ID_PREFIX)) return;
  throw new ApiError(
    'BAD_REQUEST',
    `"${field}" must be a name, which does not begin with "${NAMESPACE_ID_PREFIX}",` +
      ` got ${describe(name)}`,
  );
}

/** For a key that may not create it. */
export function unknownNamespace(name: string): ApiError {
  return new ApiError(
    'NOT_FOUND',
    `there is no namespace ${JSON.stringify(name)}, and the API key lacks the permission` +
      ` "${CREATE_NAMESPACE}" to create it`,
  );
}

/** How a request names a namespace; where it does both, the id decides. */
export interface NamesNamespace {
  namespaceId?: string;
  namespaceName?: string;
}

export function noNamespace({ namespaceId, namespaceName }: NamesNamespace): ApiError {
  const which =
    namespaceId === undefined
      ? JSON.stringify(namespaceName)
      : `with the id ${describe(namespaceId)}`;
  return new ApiError('NOT_FOUND', `there is no namespace ${which}`);
}

export function tooManyNamespaces(): ApiError {
  return new ApiError(
    'BAD_REQUEST',
    `there are ${NAMESPACES_MAX} namespaces already, which is the most that weir keeps`,
  );
}
