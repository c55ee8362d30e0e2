/**
 * envoyproxy/ratelimit itself answers the cases as they say it does, and answers random requests
 * as weir does in compatible mode. WEIR_TEST_RATELIMIT names its program.
 */

import { isDeepStrictEqual } from 'node:util';
import type { ServiceError } from '@grpc/grpc-js';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { CASE_ENVIRONMENTS, caseFiles, casesWith, type RlsCaseSettings } from '../../rls/cases.ts';
import { newSeed } from '../../support/guarantees.ts';
import {
  isRatelimitMissing,
  type Ratelimit,
  startRatelimit,
} from '../../support/programs/ratelimit.ts';
import type { DescriptorForm, RlsClient } from '../../support/rls/client.ts';
import { hitsOf, type RuleFiles, useRlsServer } from '../../support/rls/rls-server.ts';
import { seededRandom } from '../../support/seeded-random.ts';
import { waitUntil } from '../../support/server.ts';

function useRatelimit(
  files: RuleFiles,
  settings: Readonly<Record<string, string>> = {},
): Ratelimit {
  const ratelimit = {} as Ratelimit;
  beforeAll(async () => {
    Object.assign(ratelimit, await startRatelimit(files, settings));
  });
  afterAll(() => ratelimit.close?.());
  return ratelimit;
}

for (const settings of Object.keys(CASE_ENVIRONMENTS) as RlsCaseSettings[]) {
  describe.skipIf(isRatelimitMissing)(`envoyproxy/ratelimit, ${settings},`, () => {
    const ratelimit = useRatelimit(caseFiles(settings, false), CASE_ENVIRONMENTS[settings].envoy);
    for (const { name, domain, calls } of casesWith(settings, false)) {
      test(name, async () => {
        for (const { descriptors, hits = 0, answer, ...call } of calls) {
          expect(await ratelimit.rls.ask(call.domain ?? domain, descriptors, hits)).toEqual(answer);
        }
      });
    }
  });
}

describe.skipIf(isRatelimitMissing)('weir in compatible mode', () => {
  const seed = newSeed();
  const random = seededRandom(seed);
  const pick = <T>(list: readonly T[]): T => list[random(list.length)];
  const maybe = (of: number) => random(of) === 0;

  const KEYS = ['a', 'b', 'a_b', 'c'];
  const VALUES = ['', '1', '2', 'x', 'xy', 'xyz', 'b', 'b_1', 'x*', 'é'];
  const PATTERNS = [...VALUES.slice(1), '*', 'x*', 'x*z', '*z', 'x**', '*y*'];
  /** No window of these ends during the test, or only rarely. */
  const UNITS = ['hour', 'DAY', 'week', 'Month', 'year'];
  const NAMES = ['n1', 'n2', 'n3'];

  const limitText = () => {
    const fields: string[] = [];
    const name = maybe(3) ? pick(NAMES) : undefined;
    if (maybe(10)) fields.push('unlimited: true');
    else fields.push(`unit: ${pick(UNITS)}`, `requests_per_unit: ${1 + random(6)}`);
    if (name !== undefined) fields.push(`name: ${name}`);
    const other = pick(NAMES);
    if (maybe(5) && other !== name) fields.push(`replaces: [{ name: ${other} }]`);
    return `{ ${fields.join(', ')} }`;
  };
  const levelText = (depth: number, indent: string): string[] => {
    const seen = new Set<string>();
    const lines: string[] = [];
    for (let n = 1 + random(6); n > 0; n--) {
      const key = pick(KEYS);
      const value = maybe(3) ? undefined : pick(PATTERNS);
      const joined = value === undefined ? key : `${key}_${value}`;
      if (seen.has(joined)) continue;
      seen.add(joined);
      lines.push(`${indent}- key: ${key}`);
      const field = (text: string) => lines.push(`${indent}  ${text}`);
      if (value !== undefined) field(`value: "${value}"`);
      if (value?.includes('*') && maybe(3)) field('share_threshold: true');
      if (!maybe(3)) field(`rate_limit: ${limitText()}`);
      for (const flag of ['shadow_mode', 'quota_mode', 'detailed_metric', 'value_to_metric']) {
        if (maybe(8)) field(`${flag}: true`);
      }
      if (depth < 3 && maybe(2)) {
        field('descriptors:');
        lines.push(...levelText(depth + 1, `${indent}    `));
      }
    }
    return lines;
  };
  const DOMAINS = Array.from({ length: 10 }, (_, i) => `d${i}`);
  const files = Object.fromEntries(
    DOMAINS.map((name) => {
      return [`${name}.yaml`, [`domain: ${name}`, 'descriptors:', ...levelText(1, '')].join('\n')];
    }),
  );
  const entries = () => {
    const count = 1 + (maybe(2) ? 0 : random(3));
    return Array.from({ length: count }, () => `${pick(KEYS)}=${pick(VALUES)}`).join(',');
  };
  const descriptor = (): DescriptorForm => {
    const hits = maybe(4) ? { hits: random(4) } : {};
    if (!maybe(10)) return { of: entries(), ...hits };
    // Without "_": the key of its counter there does not tell a=b_1 from a_b=1.
    const of = `${pick(['a', 'b', 'c'])}=${pick(['1', '2', 'x'])}`;
    return { of, ...hits, limit: [1 + random(6), pick(['HOUR', 'DAY', 'WEEK', 'YEAR'] as const)] };
  };
  const request = () => ({
    domain: maybe(20) ? 'unknown' : pick(DOMAINS),
    descriptors: Array.from({ length: 1 + random(4) }, descriptor),
    hits: maybe(3) ? random(4) : 0,
  });

  for (const [title, weir, envoy] of [
    ['legacy headers', { WEIR_RLS_HEADERS: 'legacy' }, { LIMIT_RESPONSE_HEADERS_ENABLED: 'true' }],
    [
      'quota mode',
      { WEIR_RLS_HEADERS: 'legacy', WEIR_RLS_QUOTA_MODE: 'true' },
      { LIMIT_RESPONSE_HEADERS_ENABLED: 'true', QUOTA_MODE: 'true' },
    ],
  ] as const) {
    describe(`with ${title}`, () => {
      const server = useRlsServer({
        files,
        env: { WEIR_RLS_COMPATIBLE: 'true', ...weir } as Record<string, string>,
      });
      const ratelimit = useRatelimit(files, envoy);

      test(`answers 500 random requests as envoyproxy/ratelimit does (seed ${seed})`, async () => {
        const differences: object[] = [];
        for (let n = 0; n < 500; n++) {
          const { domain, descriptors, hits } = request();
          const ask = (client: RlsClient) => {
            return client.call(domain, descriptors, hits).catch((error: ServiceError) => {
              return { error: [error.code, error.details] };
            });
          };
          const [weirs, theirs] = [await ask(server.rls), await ask(ratelimit.rls)];
          if (isEqual(weirs, theirs)) continue;
          differences.push({ n, domain, descriptors, hits, weirs, theirs });
        }
        expect(differences).toEqual([]);
        await waitUntil('both have counted all hits', async () => {
          return isDeepStrictEqual(await hitsOf(server.adminUrl), ratelimit.hits());
        }).catch(async () => expect(await hitsOf(server.adminUrl)).toEqual(ratelimit.hits()));
      });
    });
  }
});

/** Whether two answers are equal. Each server has read its clock itself. */
function isEqual(one: object, other: object): boolean {
  const [a, b] = [splitTimes(one), splitTimes(other)];
  const areTimesEqual = a.times.every((seconds, i) => {
    const otherSeconds = b.times[i];
    if (seconds === undefined || otherSeconds === undefined) return seconds === otherSeconds;
    return Math.abs(seconds - otherSeconds) <= 1;
  });
  return areTimesEqual && isDeepStrictEqual(a.rest, b.rest);
}

interface Parts {
  rest: object;
  times: (number | undefined)[];
}

/** The parts of an answer that depend on the time, and the others. */
function splitTimes(answer: object): Parts {
  const { resets = [], headers = {}, ...rest } = answer as Record<string, object>;
  const { 'RateLimit-Reset': reset, ...others } = headers as Record<string, string>;
  const times = [...(resets as (number | undefined)[])];
  return {
    rest: { ...rest, others },
    times: [...times, reset === undefined ? undefined : Number(reset)],
  };
}
