/** What all operations say of the names of namespaces, and of those that do not exist. */

import { CREATE_NAMESPACE } from '../../auth/permissions.ts';
import { NAMESPACE_ID_PREFIX, NAMESPACES_MAX } from '../../core/constants.ts';
import { formatValue } from '../../core/describe.ts';
import { ApiError } from '../../core/errors.ts';

/** How a request names a namespace, or a pattern of names. */
export type NamespaceReference =
  | { id: string }
  /** @param field what the request calls it */
  | { name: string; field: string };

/** Of a field that takes either. */
export function parseNamespaceReference(field: string, text: string): NamespaceReference {
  return isNamespaceId(text) ? { id: text } : { name: text, field };
}

/** Ids are never names. */
export function isNamespaceId(text: string): boolean {
  return text.startsWith(NAMESPACE_ID_PREFIX);
}

/** @throws ApiError (400) where a name could be taken for an id */
export function requireNamespaceName(field: string, name: string): void {
  if (!isNamespaceId(name)) return;
  throw new ApiError(
    'BAD_REQUEST',
    `"${field}" must be a name, which does not begin with "${NAMESPACE_ID_PREFIX}";` +
      ` got ${formatValue(name)}`,
    { location: `body.${field}` },
  );
}

/** For a key that may not create it. */
export function namespaceNotCreatable(name: string): ApiError {
  return new ApiError(
    'NOT_FOUND',
    `there is no namespace ${JSON.stringify(name)}, and the API key lacks the permission` +
      ` "${CREATE_NAMESPACE}" to create it`,
  );
}

export function namespaceNotFound(reference: NamespaceReference): ApiError {
  const which =
    'id' in reference ? `with the id ${formatValue(reference.id)}` : JSON.stringify(reference.name);
  return new ApiError('NOT_FOUND', `there is no namespace ${which}`);
}

export function tooManyNamespaces(): ApiError {
  return new ApiError(
    'BAD_REQUEST',
    `there are ${NAMESPACES_MAX} namespaces already, which is the most that weir keeps`,
  );
}
