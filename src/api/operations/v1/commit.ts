/**
 * POST /v1/ratelimits.commit: ends a reservation with the cost that its work had. Failures are
 * ApiErrors: 400; 404 for a reservation that is unknown to the key.
 */

import Type from 'typebox';
import { AMOUNT_MAX, RESERVED_CHECKS_MAX } from '../../../core/constants.ts';
import { ApiError } from '../../../core/errors.ts';
import { encodeFragment, type JsonWriter } from '../../../core/json-writer.ts';
import { field, integer } from '../../../core/schema.ts';
import type { Commit } from '../../../engine/hold-engine.ts';
import type { HoldRequest } from '../../common/hold-reader.ts';
import { reservationIdField } from '../../common/holds.ts';
import { counterOperation } from '../../common/operation.ts';
import { amount, flagged } from '../../common/responses.ts';

export function response() {
  return Type.Object({
    success: flagged('Always `true`: the commit cannot be denied.'),
    charged: amount('Tokens that count for the reservation now.'),
    released: amount('Tokens that this commit has returned.'),
    late: flagged('Whether the reservation had ended by itself before.'),
  });
}

export const commit = counterOperation({
  name: 'ratelimits.commit',
  version: 'v1',
  requires: { action: 'limit', in: 'the namespace of the hold' },
  request: {
    reservationId: reservationIdField(),
    cost: Type.Optional(
      field(
        integer(0, AMOUNT_MAX),
        'Tokens that were used. It may be above the reserved cost: the rest is then charged too, ' +
          'also beyond the limit.',
      ),
    ),
    costs: Type.Optional(
      field(
        Type.Array(integer(0, AMOUNT_MAX), {
          minItems: 1,
          maxItems: RESERVED_CHECKS_MAX,
          accepts: `an array of 1 to ${RESERVED_CHECKS_MAX} integers`,
        }),
        'The same for each check of the reservation, in their order, in place of `cost`.',
      ),
    ),
  },
});

/**
 * @param count how many checks the reservation has
 * @throws ApiError (400) unless there is one cost for each
 */
export function costsOf(
  { cost, costs }: Pick<HoldRequest, 'cost' | 'costs'>,
  count: number,
): readonly number[] {
  const given = costs ?? (cost === undefined ? [] : [cost]);
  const isClear = cost === undefined || costs === undefined;
  if (isClear && given.length === count) return given;
  const accepts =
    count === 1
      ? '"cost" must be the tokens that were used'
      : `"costs" must be an array of ${count} costs, one for each check of the reservation`;
  const got = [
    ...(cost === undefined ? [] : [`"cost" = ${cost}`]),
    ...(costs === undefined ? [] : [`"costs" with ${costs.length}`]),
  ];
  const message = `${accepts}; got ${got.join(' and ') || 'neither "cost" nor "costs"'}`;
  const location = count === 1 ? 'body.cost' : 'body.costs';
  throw new ApiError('BAD_REQUEST', message, { location });
}

const CHARGED = encodeFragment('{"success":true,"charged":');
const RELEASED = encodeFragment(',"released":');
const IN_TIME = encodeFragment(',"late":false}');
const LATE = encodeFragment(',"late":true}');

/** Writes the body of the 200. */
export function writeCommitResult(writer: JsonWriter, commit: Commit): void {
  writer.writeFragment(CHARGED);
  writer.writeInteger(commit.charged);
  writer.writeFragment(RELEASED);
  writer.writeInteger(commit.released);
  writer.writeFragment(commit.isLate ? LATE : IN_TIME);
}
