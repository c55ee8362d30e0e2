/** The field `expires` of requests: the time at which an API key or an override ends. */

import { AMOUNT_MAX } from '../../core/constants.ts';
import { ApiError } from '../../core/errors.ts';
import { field, integer } from '../../core/schema.ts';
import { isoTime } from '../../shared-memory/clock.ts';

export function expiresField(description: string) {
  return field(integer(1, AMOUNT_MAX, 'a Unix time in ms, an integer'), description);
}

/** @throws ApiError (400) for a time that is not in the future */
export function requireFuture(
  expires: number | undefined,
  nowMs: number,
  fix = 'give a time in the future, or leave it out',
): void {
  if (expires === undefined || expires > nowMs) return;
  const received = `${expires}, which is ${isoTime(expires)}`;
  const message = `"expires" must be a Unix time in ms, in the future; got ${received}`;
  throw new ApiError('BAD_REQUEST', message, { location: 'body.expires', fix });
}
