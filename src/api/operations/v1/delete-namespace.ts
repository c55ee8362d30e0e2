/**
 * POST /v1/ratelimits.deleteNamespace: deletes a namespace with its overrides. What acceptors and
 * analytics have follows. v1 of Unkey's API does not have it. Failures are ApiErrors, in the order
 * 400, 403, 404, 409.
 */

import Type from 'typebox';
import { REMOVED_OVERRIDES_MAX } from '../../../core/constants.ts';
import { ApiError } from '../../../core/errors.ts';
import { namespaceDeletion, overridesDeletion } from '../../../registry/audit-entries.ts';
import { findNamespace, namespaceFields } from '../../common/namespace-query.ts';
import { type Result, writeOperation } from '../../common/operation.ts';
import { UnfinishedDeletion } from '../../common/operation-context.ts';
import { amount } from '../../common/responses.ts';

export function response() {
  return Type.Object({
    overrides: amount('Number of overrides and blocks that were deleted with the namespace.'),
  });
}

export const deleteNamespace = writeOperation({
  name: 'ratelimits.deleteNamespace',
  version: 'v1',
  requires: { action: 'delete_namespace', in: 'the namespace' },
  request: namespaceFields(),
  // If there are many overrides, the first ones are deleted before, in transactions of their own.
  handle: (context, body, unfinished): Result<typeof response> | UnfinishedDeletion => {
    const { registry, gateways } = context;
    const deletedBefore = unfinished?.overrides ?? 0;
    // Another request has deleted it meanwhile.
    if (unfinished !== undefined && registry.namespaceById(unfinished.namespaceId) === undefined) {
      return { overrides: deletedBefore };
    }
    // Another namespace may have the name by now.
    const namespace = findNamespace(context, unfinished ?? body, 'delete_namespace');
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
  },
});
