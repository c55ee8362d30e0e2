/** Names and ids of namespaces in requests, and the errors about them. */

import { CREATE_NAMESPACE } from '../../auth/permissions.ts';
import { NAMESPACE_ID_PREFIX, NAMESPACES_MAX } from '../../core/constants.ts';
import { formatValue } from '../../core/describe.ts';
import { ApiError } from '../../core/errors.ts';

/** How a request names a namespace, or a pattern of names. */
export type NamespaceReference =
  | { id: string }
  /** `field` is the field of the request, for errors. */
  | { name: string; field: string };

/** For a field that accepts an id or a name. */
export function parseNamespaceReference(field: string, text: string): NamespaceReference {
  return isNamespaceId(text) ? { id: text } : { name: text, field };
}

/** No name begins with the prefix of ids. */
export function isNamespaceId(text: string): boolean {
  return text.startsWith(NAMESPACE_ID_PREFIX);
}

/** @throws ApiError (400) for a name that begins like an id */
export function requireNamespaceName(field: string, name: string): void {
  if (!isNamespaceId(name)) return;
  throw new ApiError(
    'BAD_REQUEST',
    `"${field}" must be a name that does not begin with "${NAMESPACE_ID_PREFIX}";` +
      ` got ${formatValue(name)}`,
    { location: `body.${field}` },
  );
}

/** The error for a key that may not create the namespace. */
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
  return new ApiError('BAD_REQUEST', `the maximum of ${NAMESPACES_MAX} namespaces is reached`);
}
