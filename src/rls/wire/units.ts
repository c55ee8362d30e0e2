/** The units of a limit: the enum `RateLimitResponse.RateLimit.Unit` of Envoy's `rls.proto`. */

/** A month has 30 days and a year has 365, as in envoyproxy/ratelimit. */
export const UNIT_SECONDS = {
  SECOND: 1,
  MINUTE: 60,
  HOUR: 3_600,
  DAY: 86_400,
  WEEK: 604_800,
  MONTH: 2_592_000,
  YEAR: 31_536_000,
} as const;

export type UnitName = keyof typeof UNIT_SECONDS;

/** The numbers of the enum. 0 is UNKNOWN. */
export const UNIT_NUMBER: Readonly<Record<UnitName, number>> = {
  SECOND: 1,
  MINUTE: 2,
  HOUR: 3,
  DAY: 4,
  MONTH: 5,
  YEAR: 6,
  WEEK: 7,
};

const UNIT_NAMES = Object.keys(UNIT_NUMBER) as UnitName[];
const NAME_BY_NUMBER = new Map(UNIT_NAMES.map((name) => [UNIT_NUMBER[name], name]));
const NUMBER_BY_MS = new Map(
  UNIT_NAMES.map((name) => [UNIT_SECONDS[name] * 1_000, UNIT_NUMBER[name]]),
);

/** @returns undefined for UNKNOWN, and for a number that is no unit */
export function unitName(number: number): UnitName | undefined {
  return NAME_BY_NUMBER.get(number);
}

/** The unit of a duration, or undefined where no unit has it. */
export function unitOfDuration(durationMs: number): number | undefined {
  return NUMBER_BY_MS.get(durationMs);
}
