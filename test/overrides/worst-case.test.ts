import { describe, expect, test } from 'vitest';
import { SLOW_CHECKS, searchSlowCheck, stepsOf } from '../../bench/support/worst-overrides.ts';
import {
  IDENTIFIER_MAX_CHARACTERS,
  INFIX_OVERRIDES_MAX,
  MIDDLE_MAX_CHARACTERS,
  WILDCARD_OVERRIDES_MAX,
  WILDCARDS_PER_TEXT_MAX,
} from '../../src/core/constants.ts';
import { newSeed, recordMeasurement, trialCount } from '../support/guarantees.ts';

const CHARACTERS = IDENTIFIER_MAX_CHARACTERS;
const UNITS = 2 * CHARACTERS;
/** Parts of a segment that are looked up. */
const CHUNKS = Math.ceil(CHARACTERS / MIDDLE_MAX_CHARACTERS);
const SEGMENTS = WILDCARDS_PER_TEXT_MAX - 1;
/** Words of a bitmap of characters, after the first one of each segment. */
const WORDS = CHARACTERS / 32;

/** What a root takes: units and nodes of prefixes and suffixes, infixes, CIDR blocks. */
const ROOT_STEPS =
  4 * (UNITS + 1) + INFIX_OVERRIDES_MAX * (2 + 2 * (CHUNKS + SEGMENTS) + WORDS * CHUNKS) + 2 * 130;
/** The units and nodes of middles at each character. */
const MIDDLE_STEPS = CHARACTERS * (4 * MIDDLE_MAX_CHARACTERS + 1);
/** There are two roots. Both look up each middle; and each override is in two lists at most. */
const STEPS_MAX = 2 * ROOT_STEPS + MIDDLE_STEPS + 4 * WILDCARD_OVERRIDES_MAX;

const ROUNDS = trialCount(20, 2_000);

describe('the steps of a check', () => {
  test('are bounded by the numbers of patterns, also for sets that a search makes slow', () => {
    const seed = newSeed();
    let most = 0;
    let tried = 0;
    for (const [i, check] of SLOW_CHECKS.entries()) {
      const record = (steps: number) => {
        tried++;
        most = Math.max(most, steps);
        expect([seed, check.name, steps <= STEPS_MAX]).toEqual([seed, check.name, true]);
      };
      record(stepsOf(check));
      searchSlowCheck(check, seed + i, ROUNDS, record);
    }
    recordMeasurement(
      'P3',
      'steps of a match, worst of a search',
      `${tried} sets`,
      `${most} of ${STEPS_MAX}`,
    );
  });
});
