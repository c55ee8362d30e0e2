/**
 * WEIR_TEST_SCALE reduces the trials of tests that repeat something often. `.ci/run` uses a smaller
 * scale on its second Node version, and skips a few slow files there.
 */

const SCALE = Number(process.env.WEIR_TEST_SCALE ?? 1);

export const IS_SHORTENED = SCALE < 1;

/** Whether tests with third-party programs run in their long form: `npm run test:outside`. */
export const IS_OUTSIDE_LONG = process.env.WEIR_OUTSIDE === 'long';

export function scaledCount(count: number): number {
  return Math.ceil(count * SCALE);
}
