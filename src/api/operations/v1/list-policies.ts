/**
 * GET /v1/ratelimits.listPolicies: the active policies of gateways, and the listener for gateways.
 * v1 of Unkey's API does not have it. Failures are ApiErrors, in the order 400, 403.
 */

import { resolve } from 'node:path';
import Type from 'typebox';
import { PAGE_MAX } from '../../../core/constants.ts';
import { locallyReachableHost } from '../../../core/hosts.ts';
import { type Result, readOperation } from '../../common/operation.ts';
import { pageFields, pageOf } from '../../common/pages.ts';
import { policyFields } from '../../common/policy-fields.ts';
import { listOf, named, pageState } from '../../common/responses.ts';

export function response() {
  return Type.Object({
    policies: listOf(Type.Object(policyFields()), 'Policies of namespaces that the key may read.'),
    gateway: Type.Object(
      {
        url: Type.Optional(named('URL of the port for gateways. Absent if there is none.')),
        socket: Type.Optional(named('Path of the Unix socket for gateways. Absent without one.')),
      },
      { description: 'Where gateways send checks without a key.' },
    ),
    ...pageState(),
  });
}

export const listPolicies = readOperation({
  name: 'ratelimits.listPolicies',
  version: 'v1',
  requires: { action: 'read_namespace', in: 'each listed namespace' },
  request: pageFields(PAGE_MAX),
  handle: ({ registry, permissions, gateways }, query): Result<typeof response> => {
    if (!permissions.mayInSomeNamespace('read_namespace'))
      permissions.require('read_namespace', undefined);
    const all = gateways.policies().map((policy, row) => ({ policy, row }));
    const visible = all.filter(({ policy }) => {
      return permissions.may('read_namespace', registry.namespaceByName(policy.namespace)?.id);
    });
    const { items, rest } = pageOf(visible, query, PAGE_MAX);
    const { host, port, socket } = gateways.addresses;
    const gateway = {
      ...(port !== undefined && { url: `http://${locallyReachableHost(host)}:${port}` }),
      ...(socket !== undefined && { socket: resolve(socket) }),
    };
    return { policies: items.map(({ policy }) => policy), gateway, ...rest };
  },
});
