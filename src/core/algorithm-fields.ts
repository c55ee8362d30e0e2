/**
 * The fields "algorithm" and "burst" of checks and of the windows of policies. A schema cannot
 * compare fields, so a function rejects a burst without GCRA and a burst above the limit.
 */

import Type from 'typebox';
import { AMOUNT_MAX } from './constants.ts';
import { formatValue } from './describe.ts';
import { ApiError } from './errors.ts';
import { field, integer } from './schema.ts';
import { RULE, type RuleName } from './window-rules.ts';

export const ALGORITHMS = Object.keys(RULE) as RuleName[];
/** As error messages and help texts list them. */
export const ALGORITHM_NAMES = `${ALGORITHMS.slice(0, -1).join(', ')} or ${ALGORITHMS.at(-1)}`;

/** @param defaultRule undefined if none is the default */
export function algorithm(description: string, defaultRule?: RuleName) {
  const schema = Type.Enum([...ALGORITHMS], { accepts: ALGORITHM_NAMES });
  return Type.Optional(field(schema, description, defaultRule));
}

export function algorithmFields(defaultRule: RuleName) {
  const burst = integer(1, AMOUNT_MAX);
  return {
    algorithm: algorithm('Window rule: how tokens are counted.', defaultRule),
    burst: Type.Optional(
      field(
        burst,
        'Only for `gcra`: tokens that may be used at once. At most `limit`, which is the default.',
      ),
    ),
  };
}

/** What clients and policies may set of the window rule. */
export interface AlgorithmFields {
  algorithm?: RuleName;
  burst?: number;
}

/** @throws ApiError (400) for a burst that the algorithm or the limit does not allow */
export function requireValidBurst(fields: AlgorithmFields & { limit: number }): void {
  const { limit, algorithm, burst } = fields;
  if (burst === undefined) return;
  const location = 'body.burst';
  if (algorithm !== 'gcra') {
    const takes = '"burst" must be left out unless "algorithm" is "gcra"';
    const which =
      algorithm === undefined ? 'without an algorithm' : `with ${formatValue(algorithm)}`;
    throw new ApiError('BAD_REQUEST', `${takes}; got ${burst} ${which}`, {
      location,
      fix: 'leave "burst" out, or set "algorithm" to "gcra"',
    });
  }
  if (burst <= limit) return;
  const takes = `an integer from 1 to the limit, which is ${limit}`;
  throw new ApiError('BAD_REQUEST', `"burst" must be ${takes}; got ${burst}`, {
    location,
    fix: `give ${takes}`,
  });
}
