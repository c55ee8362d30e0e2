/** What a client may know of the policies of gateways. weir's own. On the main thread. */

import { resolve } from 'node:path';
import Type from 'typebox';
import { PAGE_MAX } from '../../core/constants.ts';
import { locallyReachableHost } from '../../core/hosts.ts';
import { createValidator } from '../../core/schema.ts';
import type { OperationHandler } from '../common/operation-context.ts';
import { pageFields, pageOf } from '../common/pages.ts';

const validator = createValidator(Type.Object(pageFields(PAGE_MAX), { takes: 'a query' }));

/** Those in force in namespaces that the key may read, and where gateways ask without a key. */
export const listPolicies: OperationHandler = ({ registry, permissions, gateways }, input) => {
  const asked = validator.validate(input);
  if (!permissions.mayInSomeNamespace('read_namespace'))
    permissions.require('read_namespace', undefined);
  const all = gateways.policies().map((policy, row) => ({ policy, row }));
  const visible = all.filter(({ policy }) => {
    return permissions.may('read_namespace', registry.namespaceByName(policy.namespace)?.id);
  });
  const { items, rest } = pageOf(visible, asked, PAGE_MAX);
  const { host, port, socket } = gateways.addresses;
  const gateway = {
    url: port === undefined ? undefined : `http://${locallyReachableHost(host)}:${port}`,
    socket: socket === undefined ? undefined : resolve(socket),
  };
  return { policies: items.map(({ policy }) => policy), gateway, ...rest };
};
