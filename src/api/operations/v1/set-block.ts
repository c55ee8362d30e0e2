/**
 * POST /v1/ratelimits.setBlock: denies every check of an identifier in a namespace, for a time.
 * Failures are ApiErrors, in the order 400, 403, 404.
 */

import Type from 'typebox';
import { BLOCK_REASON_MAX_CHARACTERS, IDENTIFIER_MAX_CHARACTERS } from '../../../core/constants.ts';
import { field, text } from '../../../core/schema.ts';
import { blockId, putBlock } from '../../common/blocks.ts';
import { expiresField } from '../../common/expires.ts';
import { namespaceFields } from '../../common/namespace-query.ts';
import { type Result, writeOperation } from '../../common/operation.ts';

export function response() {
  return Type.Object({ blockId: blockId() });
}

export const setBlock = writeOperation({
  name: 'ratelimits.setBlock',
  version: 'v1',
  requires: { action: 'set_override', in: 'the namespace' },
  request: {
    ...namespaceFields(),
    identifier: field(
      text(0, IDENTIFIER_MAX_CHARACTERS),
      'The `identifier` of the checks to deny. `*` is a character in it.',
    ),
    expires: expiresField(
      'Time at which the block ends by itself, in Unix milliseconds. It must be in the future.',
    ),
    reason: Type.Optional(
      field(
        text(1, BLOCK_REASON_MAX_CHARACTERS),
        'Why it is blocked. The audit log and `ratelimits.explain` show it.',
      ),
    ),
  },
  handle: (context, body): Result<typeof response> => ({ blockId: putBlock(context, body).id }),
});
