/** A valid check, as the API hands it to the engine. */

import type { CheckParameters } from './decision.ts';
import type { Namespace } from './namespace.ts';

/** A check in order, by a key that may ask it, as it stands or as an override has it. */
export interface Check extends CheckParameters {
  namespace: Namespace;
  /** Answer from the counter as it stands, deduct afterwards. */
  isAsync: boolean;
  /** The override that governs it, where its answer says so. */
  overrideId: string | undefined;
}
