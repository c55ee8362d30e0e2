/**
 * GET /v1/ratelimits.listBlocks: the identifiers that are blocked now. Failures are ApiErrors, in
 * the order 400, 403, 404.
 */

import Type from 'typebox';
import { PAGE_MAX } from '../../../core/constants.ts';
import { blockFields, blockOwner, readableBlocks, shownBlock } from '../../common/blocks.ts';
import { namespaceFields } from '../../common/namespace-query.ts';
import { type Result, readOperation } from '../../common/operation.ts';
import { overrideUsage, usageShown } from '../../common/override-fields.ts';
import { pageFields, pageOf } from '../../common/pages.ts';
import { listOf, named, namespaceId, pageState, unixMs } from '../../common/responses.ts';

export function response() {
  const { id, ...fields } = blockFields();
  const block = Type.Object({
    id,
    namespaceId: namespaceId('Id of the namespace.'),
    namespaceName: named('Name of the namespace.'),
    identifier: named('The identifier that is blocked.'),
    created: unixMs('Time at which it was blocked'),
    ...fields,
    ...overrideUsage(),
  });
  return Type.Object({
    blocks: listOf(block, 'The blocks, in the order of their creation.'),
    ...pageState(),
  });
}

export const listBlocks = readOperation({
  name: 'ratelimits.listBlocks',
  version: 'v1',
  requires: { action: 'read_override', in: 'each listed namespace' },
  request: {
    ...namespaceFields('Without both, the blocks of all namespaces are listed.'),
    ...pageFields(PAGE_MAX),
  },
  handle: (context, query): Result<typeof response> => {
    const { items, rest } = pageOf(readableBlocks(context, query), query, PAGE_MAX);
    const blocks = items.map((block) => {
      const { identifier, createdMs: created } = block;
      const place = { ...blockOwner(context.registry, block), identifier, created };
      return { ...place, ...shownBlock(block), ...usageShown(context, true, block) };
    });
    return { blocks, ...rest };
  },
});
