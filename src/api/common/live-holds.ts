/** The live holds of an identifier in responses. */

import Type, { type Static } from 'typebox';
import { ALGORITHMS } from '../../core/algorithm-fields.ts';
import { LISTED_HOLDS_MAX } from '../../core/constants.ts';
import type { LiveHolds } from '../../engine/hold-engine.ts';
import { HOLD_KIND } from '../../engine/hold-id.ts';
import { HOLD_KINDS, holdKind } from './holds.ts';
import { amount, listOf, named, unixMs } from './responses.ts';

/** The schema of `shownHoldSums`. */
export function holdSums() {
  return {
    reserved: amount(
      'Tokens of the live reservations. The counters count them as used, as far as their ' +
        'windows have not ended.',
    ),
    inUse: amount('Tokens of the live leases.'),
    live: amount('Number of live reservations and leases.'),
  };
}

export function shownHoldSums({ reservedTokens, inUse, count }: LiveHolds) {
  return { reserved: reservedTokens, inUse, live: count };
}

/** The schema of `shownHolds`. */
export function liveHoldsField() {
  const hold = Type.Object({
    kind: holdKind(),
    handle: named('Short name of the hold, for `ratelimits.endHold`. It is not its id.'),
    tokens: amount('Tokens that are reserved, or in use.'),
    limit: amount('The limit of its request, or of the override that applied.'),
    duration: Type.Optional(amount('Length of the window in milliseconds. Of a reservation.')),
    algorithm: Type.Optional(
      Type.Enum([...ALGORITHMS], { description: 'The window rule. Of a reservation.' }),
    ),
    expiresAt: unixMs('Time at which it ends by itself'),
  });
  return Type.Object(
    { ...holdSums(), list: listOf(hold, `The first ${LISTED_HOLDS_MAX} to expire.`) },
    {
      description:
        'The reservations and leases of the identifier that have not ended, also of other ' +
        'algorithms and durations.',
    },
  );
}

export function shownHolds(holds: LiveHolds): Static<ReturnType<typeof liveHoldsField>> {
  const list = holds.listed.map(({ kind, handle, tokens, limit, durationMs, rule, expiresAt }) => {
    const hold = { kind: HOLD_KINDS[kind], handle, tokens, limit };
    if (kind === HOLD_KIND.lease) return { ...hold, expiresAt };
    const window = { duration: durationMs, algorithm: ALGORITHMS[rule] };
    return { ...hold, ...window, expiresAt };
  });
  return { ...shownHoldSums(holds), list };
}
