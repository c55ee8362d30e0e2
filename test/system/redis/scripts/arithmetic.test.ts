import { createClient } from '@redis/client';
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { AMOUNT_MAX, DURATION_MAX_MS } from '../../../../src/core/constants.ts';
import quotient from '../../../../src/engine/redis/scripts/quotient.lua';
import share from '../../../../src/engine/redis/scripts/share.lua';
import { composeLua } from '../../../../src/redis/script.ts';
import { isRedisMissing } from '../../../support/programs/redis.ts';
import { useRedis } from '../use-redis.ts';

const HEAD = 'local max, min, floor = math.max, math.min, math.floor\n';
const FORMAT = `
local lines = {}
for i = 1, #ARGV, 4 do
  local a, b, c, d = tonumber(ARGV[i]), tonumber(ARGV[i + 1]), tonumber(ARGV[i + 2]), tonumber(ARGV[i + 3])
  RESULT
end
return lines`;

/** Integers of all magnitudes, and those next to where doubles end. */
const integer = (to: number) => {
  return fc.oneof(
    fc.integer({ min: 0, max: to }),
    fc.integer({ min: 0, max: 52 }).map((bits) => Math.min(2 ** bits, to)),
    fc.integer({ min: 0, max: 100 }).map((below) => to - below),
    fc.integer({ min: 0, max: 1_000 }),
  );
};
const duration = fc.integer({ min: 1, max: DURATION_MAX_MS });

describe.skipIf(isRedisMissing)('the arithmetic of scripts', () => {
  const redis = useRedis();
  let client: ReturnType<typeof createClient>;

  beforeAll(async () => {
    client = createClient({ socket: { host: redis.host, port: redis.port } });
    client.on('error', () => {});
    await client.connect();
  });
  afterAll(() => client?.destroy());

  const evaluate = async (text: string, result: string, rows: readonly number[][]) => {
    const lua = HEAD + text + FORMAT.replace('RESULT', `lines[#lines + 1] = ${result}`);
    const script = composeLua(lua, {}, { AMOUNT_MAX });
    const args = rows.flatMap((row) => [...row, 0].slice(0, 4)).map(String);
    return (await client.eval(script, { arguments: args })) as string[];
  };

  it('has the exact share of a window that another window covers', async () => {
    const rows = fc
      .tuple(integer(AMOUNT_MAX), duration, fc.double({ min: 0, max: 1, noNaN: true }))
      .map(([amount, whole, part]) => [amount, Math.floor(whole * part), whole]);
    const property = fc.asyncProperty(fc.array(rows, { minLength: 50 }), async (cases) => {
      const results = await evaluate(share, "string.format('%d', share(a, b, c))", cases);
      cases.forEach(([amount, part, whole], i) => {
        expect(BigInt(results[i])).toBe((BigInt(amount) * BigInt(part)) / BigInt(whole));
      });
    });
    await fc.assert(property, { numRuns: 100 });
  });

  // A divisor is a duration or a limit. Products of costs and durations are below 2^95.
  const factors = fc.tuple(integer(AMOUNT_MAX), duration, fc.nat(), integer(AMOUNT_MAX - 1));

  it.each([
    { name: 'ceiling', way: 'up', sign: -1n },
    { name: 'floorOf', way: 'down', sign: 1n },
  ])('rounds quotients $way, exactly for divisors below 2^42', async ({ name, sign }) => {
    const divided = `(function(q, r) return string.format('%d %d', min(q, 2 ^ 60), r) end)`;
    const rows = factors.map(([a, b, c, limit]) => [a, b, Math.min(c, limit), limit + 1]);
    const property = fc.asyncProperty(fc.array(rows, { minLength: 50 }), async (cases) => {
      const results = await evaluate(quotient, `${divided}(${name}(a, b, c, d))`, cases);
      cases.forEach(([a, b, c, divisor], i) => {
        const [quotient, rest] = results[i].split(' ').map(BigInt);
        const dividend = BigInt(a) * BigInt(b) + sign * BigInt(c);
        const down = dividend / BigInt(divisor);
        const isRaised = sign < 0n && dividend > down * BigInt(divisor);
        const exact = dividend < 0n ? 0n : down + BigInt(isRaised);
        // Callers bound it.
        if (exact >= BigInt(AMOUNT_MAX) - 1n) {
          if (sign < 0n) expect(quotient).toBeGreaterThanOrEqual(BigInt(AMOUNT_MAX) - 1n);
        } else if (divisor < 2 ** 42 || a * b + c <= AMOUNT_MAX) {
          const exactRest = sign * (dividend - exact * BigInt(divisor));
          expect([quotient, rest]).toEqual([exact, exactRest]);
        } else {
          // Never too small, or never too large.
          const error = -sign * (quotient - exact);
          expect(error >= 0n && error <= 3n + exact / 2n ** 48n).toBe(true);
          expect(rest).toBe(0n);
        }
      });
    });
    // A product of two steps of the divisor was beyond 2^53.
    const regression = [[3_006_951_337_560_248, 2, 0, 3_006_951_337_560_247]];
    await fc.assert(property, { numRuns: 100, examples: [[regression]] });
  });
});
