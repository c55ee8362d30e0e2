/** The holds of an engine, for the routes that need them. */

import { ApiError } from '../core/errors.ts';
import type { Engine } from '../engine/engine.ts';
import type { HoldEngine } from '../engine/hold-engine.ts';

/** @throws ApiError (400) if the engine has no holds */
export function requireHolds({ holds }: Engine): HoldEngine {
  if (holds !== undefined) return holds;
  const message =
    'reservations and leases are not available with WEIR_ENGINE=redis; they need ' +
    'WEIR_ENGINE=memory';
  throw new ApiError('BAD_REQUEST', message);
}
