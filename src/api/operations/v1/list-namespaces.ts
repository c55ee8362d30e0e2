/**
 * GET /v1/ratelimits.listNamespaces. v1 of Unkey's API does not have it. Failures are ApiErrors, in
 * the order 400, 403.
 */

import Type from 'typebox';
import { PAGE_MAX } from '../../../core/constants.ts';
import { type Result, readOperation } from '../../common/operation.ts';
import { pageFields, pageOf } from '../../common/pages.ts';
import { listOf, named, namespaceId, pageState } from '../../common/responses.ts';

export function response() {
  const namespace = Type.Object({
    id: namespaceId('Id of the namespace.'),
    name: named('Name of the namespace.'),
  });
  return Type.Object({
    namespaces: listOf(
      namespace,
      'The namespaces that the key may read, in the order of their creation.',
    ),
    ...pageState(),
  });
}

export const listNamespaces = readOperation({
  name: 'ratelimits.listNamespaces',
  version: 'v1',
  requires: { action: 'read_namespace', in: 'each listed namespace' },
  request: pageFields(PAGE_MAX),
  handle: ({ registry, permissions }, query): Result<typeof response> => {
    if (!permissions.mayInSomeNamespace('read_namespace'))
      permissions.require('read_namespace', undefined);
    const visible = registry.namespaces().filter(({ id }) => permissions.may('read_namespace', id));
    const { items, rest } = pageOf(visible, query, PAGE_MAX);
    return { namespaces: items.map(({ id, name }) => ({ id, name })), ...rest };
  },
});
