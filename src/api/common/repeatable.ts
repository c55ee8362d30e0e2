/** The `requestId` of requests that a client may repeat: its field, and its errors. */

import Type from 'typebox';
import { REQUEST_ID_MAX_CHARACTERS, REQUEST_ID_MS } from '../../core/constants.ts';
import { formatValue } from '../../core/describe.ts';
import { ApiError } from '../../core/errors.ts';
import { field, text } from '../../core/schema.ts';

const SECONDS = REQUEST_ID_MS / 1_000;

export function requestIdField() {
  return Type.Optional(
    field(
      text(1, REQUEST_ID_MAX_CHARACTERS),
      `Makes it safe to repeat the request for ${SECONDS} s: a repetition of an allowed request ` +
        'gets the same answer, and is not counted again. Give each request a new random text, ' +
        'and only its repetitions the same one. Never use a text that an end user chose.',
    ),
  );
}

/** @param parameters the names of the fields that a repetition must not change */
export function requestIdConflict(requestId: string, parameters: readonly string[]): ApiError {
  const same = `${parameters.slice(0, -1).join(', ')} and ${parameters.at(-1)}`;
  return new ApiError(
    'CONFLICT',
    `"requestId" must be new, or that of a request with the same ${same}; got ` +
      `${formatValue(requestId)}, which was allowed with other values less than ${SECONDS} s ago`,
  );
}
