/**
 * What is tried many times is tried in full unless WEIR_TEST_SCALE says otherwise: `.ci/run` makes
 * a smaller share of it on its second Node, where a few that take their time are left out as well.
 */

const SCALE = Number(process.env.WEIR_TEST_SCALE ?? 1);

export const IS_SHORTENED = SCALE < 1;

/** Whether tests with programs of others are run at length: `npm run test:outside`. */
export const IS_OUTSIDE_LONG = process.env.WEIR_OUTSIDE === 'long';

export function scaledCount(count: number): number {
  return Math.ceil(count * SCALE);
}
