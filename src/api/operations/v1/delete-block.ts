/**
 * POST /v1/ratelimits.deleteBlock: ends the block of an identifier. Failures are ApiErrors, in the
 * order 400, 403, 404.
 */

import { IDENTIFIER_MAX_CHARACTERS } from '../../../core/constants.ts';
import { field, text } from '../../../core/schema.ts';
import { removeBlock } from '../../common/blocks.ts';
import { namespaceFields } from '../../common/namespace-query.ts';
import { type Result, writeOperation } from '../../common/operation.ts';
import { empty } from '../../common/responses.ts';

export const response = empty;

export const deleteBlock = writeOperation({
  name: 'ratelimits.deleteBlock',
  version: 'v1',
  requires: { action: 'delete_override', in: 'the namespace' },
  request: {
    ...namespaceFields(),
    identifier: field(text(0, IDENTIFIER_MAX_CHARACTERS), 'The identifier that is blocked.'),
  },
  handle: (context, body): Result<typeof response> => {
    removeBlock(context, body);
    return {};
  },
});
