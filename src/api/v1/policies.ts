/**
 * The operation that lists the policies of gateways, on the main thread. v1 of Unkey's API does not
 * have it.
 */

import { resolve } from 'node:path';
import Type from 'typebox';
import { PAGE_MAX } from '../../core/constants.ts';
import { locallyReachableHost } from '../../core/hosts.ts';
import { createValidator, QUERY } from '../../core/schema.ts';
import type { OperationHandler } from '../common/operation-context.ts';
import { pageFields, pageOf } from '../common/pages.ts';
import type { ResponseV1 } from './responses.ts';

export const listValidator = createValidator(Type.Object(pageFields(PAGE_MAX), QUERY));

/** Active policies of namespaces that the key may read, and the listener for gateways. */
export const listPolicies: OperationHandler<ResponseV1<'ratelimits.listPolicies'>> = (
  { registry, permissions, gateways, validate },
  input,
) => {
  const request = validate(listValidator, input);
  if (!permissions.mayInSomeNamespace('read_namespace'))
    permissions.require('read_namespace', undefined);
  const all = gateways.policies().map((policy, row) => ({ policy, row }));
  const visible = all.filter(({ policy }) => {
    return permissions.may('read_namespace', registry.namespaceByName(policy.namespace)?.id);
  });
  const { items, rest } = pageOf(visible, request, PAGE_MAX);
  const { host, port, socket } = gateways.addresses;
  const gateway = {
    ...(port !== undefined && { url: `http://${locallyReachableHost(host)}:${port}` }),
    ...(socket !== undefined && { socket: resolve(socket) }),
  };
  return { policies: items.map(({ policy }) => policy), gateway, ...rest };
};
