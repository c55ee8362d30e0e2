/**
 * Membership and recovery in the real scripts, beside their model that the explorer of schedules
 * uses: random calls of members, with lists, epochs and times that may be old, get the same answers
 * and leave the same members. The clock of the bucket follows the newest one that a member has seen,
 * so the test moves the time.
 */

import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import {
  decodeExchange,
  encodeExchange,
  exchange as exchangeScript,
} from '../../../../src/engine/redis/scripts/exchange.ts';
import {
  decodeLeave,
  decodePresentMembers,
  encodeLeave,
  encodePresentMembers,
  forgetMembers,
  leave,
  presentMembers as presentScript,
} from '../../../../src/engine/redis/scripts/members.ts';
import {
  CALL_STATUS,
  type CallAnswer,
  type CallHeader,
  MESSAGE_STATUS,
} from '../../../../src/engine/redis/scripts/protocol.ts';
import { headerArguments, type ScriptContext } from '../../../../src/engine/redis/scripts/reply.ts';
import {
  exchange,
  forgetMember,
  leaveMember,
  newRedis,
  presentMembers,
  type RedisState,
  RULES,
} from '../../../model/lease-model.ts';
import { newSeed, trialCount } from '../../../support/guarantees.ts';
import { isRedisMissing } from '../../../support/programs/redis.ts';
import { connectMember, FAR_MS, IDENTITY, type ScriptMember } from '../script-member.ts';
import { useRedis } from '../use-redis.ts';

const MEMBERS = 4;
const DURATION_MS = 60_000;
const names = Array.from({ length: MEMBERS }, (_, i) => `${String(i).padStart(16, '0')}.0`);

const AGES = ['none', 'old', 'current', 'current', 'current'] as const;
const step = fc.record({
  member: fc.nat({ max: MEMBERS - 1 }),
  /** Long enough, or too short, for each time in the rules. */
  stepMs: fc.constantFrom(0, 0, 20, 20, 600, 1_100, 3_100, 11_000),
  /** The epoch and the version of the list that the member names. */
  reported: fc.constantFrom(...AGES),
  version: fc.constantFrom(...AGES),
  action: fc.oneof(
    { weight: 5, arbitrary: fc.constant('call') },
    { weight: 3, arbitrary: fc.constant('present') },
    { weight: 1, arbitrary: fc.constantFrom('forget', 'fail over', 'miss a counter', 'lose all') },
    { weight: 1, arbitrary: fc.constant('leave') },
  ),
  presented: fc.subarray(names),
  /** When the usage of a member that leaves no longer counts. */
  usageEndMs: fc.constantFrom(0, FAR_MS),
});

/** The members and the recovery of a bucket, as text. */
const READ = `
local lines = {'0'}
local everything = redis.call('HGETALL', KEYS[1])
for i = 1, #everything, 2 do
  local field, value = everything[i], everything[i + 1]
  local kind = field:sub(1, 2)
  if field == 'a' then
    local clock, _, fence, number, version = struct.unpack('<ddddddd', value)
    lines[1] = string.format('%.0f', clock)
    lines[#lines + 1] = string.format('a %.0f %.0f %.0f', fence, number, version)
  elseif kind == 'm:' then
    local numbers = {struct.unpack('<dddddd', value)}
    for k = 1, 6 do numbers[k] = string.format('%.0f', numbers[k]) end
    lines[#lines + 1] = field .. ' ' .. table.concat(numbers, ' ', 1, 6)
  elseif kind == 'f:' then lines[#lines + 1] = field end
end
return lines
`;

describe.skipIf(isRedisMissing)('the scripts of members and their model', () => {
  const redis = useRedis();
  let caller: ScriptMember;
  let runId = '';
  beforeAll(async () => {
    caller = await connectMember(redis.port, names[0]);
    const info = String(await caller.command('INFO', 'server'));
    runId = /run_id:([0-9a-f]{40})/.exec(info)![1];
  });
  afterAll(() => caller?.close());

  it.each([false, true])(
    'answer and store the same for random calls (available: %s)',
    { timeout: 300_000 },
    async (isAvailable) => {
      const { keys } = caller.context;
      const key = keys.members(0);
      const context: ScriptContext = { keys, isAvailable };
      const rules = { ...RULES, isAvailable };
      const seen = { statuses: new Set<number>(), recoveries: 0, recovered: 0, left: 0 };
      const read = async () => {
        const [clock, ...lines] = (await caller.command('EVAL', READ, '1', key)) as string[];
        return { clockUs: Number(clock), lines: lines.sort() };
      };
      const property = fc.asyncProperty(
        fc.array(step, { minLength: 5, maxLength: 40 }),
        async (steps) => {
          await caller.command('FLUSHALL');
          const model: RedisState = newRedis(runId);
          const ages = {
            none: { epoch: '', version: 0 },
            old: { epoch: '', version: 0 },
            current: { epoch: '', version: 0 },
          };
          let clockUs = 0;
          let hasFailedOver = false;
          for (const one of steps) {
            const { member, action, presented, stepMs, reported, version, usageEndMs } = one;
            // A run id is read when the clock is stored.
            const ms = hasFailedOver ? Math.max(20, stepMs) : stepMs;
            const header: CallHeader = {
              member: names[member],
              reportedEpoch: ages[reported].epoch,
              membersVersion: ages[version].version,
              clockUs: clockUs === 0 ? 0 : clockUs + ms * 1_000,
            };
            let answer: Omit<CallAnswer, 'counters'> | undefined;
            let modelled: CallAnswer | undefined;
            switch (action) {
              case 'fail over':
                if (model.meta === undefined) continue;
                model.meta.runId = 'f'.repeat(40);
                await caller.command('HSET', key, 'e', model.meta.runId);
                hasFailedOver = true;
                continue;
              case 'lose all':
                delete model.meta;
                await caller.command('FLUSHALL');
                continue;
              case 'forget': {
                if (model.meta?.members[names[member]] === undefined || hasFailedOver) continue;
                const args = [...headerArguments(header, context), names[member]];
                await caller.run(forgetMembers, { keys: [key], args });
                clockUs = (await read()).clockUs;
                forgetMember(model, clockUs, names[member]);
                break;
              }
              case 'leave': {
                const call = encodeLeave(context, 0, header, usageEndMs);
                const hasLeft = decodeLeave(await caller.run(leave, call));
                if (hasLeft) clockUs = (await read()).clockUs;
                expect(leaveMember(model, clockUs, header, usageEndMs * 1_000, rules)).toBe(
                  hasLeft,
                );
                // The clock was not stored, either.
                if (!hasLeft) continue;
                seen.left++;
                break;
              }
              case 'present': {
                const call = encodePresentMembers(context, 0, header, presented, 0);
                answer = decodePresentMembers(await caller.run(presentScript, call));
                clockUs = answer.clockUs;
                modelled = presentMembers(model, clockUs, header, presented, rules);
                break;
              }
              default: {
                const window = Math.floor(header.clockUs / 1_000 / DURATION_MS);
                const message = { ...caller.message({}), identity: IDENTITY, window };
                const messages =
                  action === 'call'
                    ? []
                    : [{ ...message, durationMs: DURATION_MS, isStored: true }];
                const call = encodeExchange(context, 0, header, messages);
                const decoded = decodeExchange(messages, await caller.run(exchangeScript, call));
                answer = decoded;
                clockUs = answer.clockUs;
                modelled = exchange(model, clockUs, header, messages, rules).answer;
                const status = modelled.counters[0]?.status;
                if (status === MESSAGE_STATUS.recovering) {
                  expect(decoded.counters[0].status).toBe(status);
                }
              }
            }
            hasFailedOver = false;
            if (answer !== undefined && modelled !== undefined) {
              const { status, epoch, isRecovering, membersVersion } = modelled;
              expect(answer).toMatchObject({ status });
              seen.statuses.add(status);
              // An empty Redis has none.
              if (model.meta === undefined) continue;
              expect(answer).toMatchObject({ epoch, isRecovering, membersVersion });
              if (epoch !== ages.current.epoch) {
                ages.old = ages.current;
                seen.recoveries++;
              } else if (!isRecovering) seen.recovered++;
              ages.current = { epoch, version: membersVersion };
            }
            expect((await read()).lines).toEqual(linesOf(model));
          }
        },
      );
      await fc.assert(property, { seed: newSeed(), numRuns: trialCount(60, 300) });
      const { done, joining, needsMembers } = CALL_STATUS;
      const statuses = isAvailable ? [done, needsMembers] : [done, joining, needsMembers];
      expect([...seen.statuses].sort()).toEqual(statuses);
      expect(Math.min(seen.recoveries, seen.recovered, seen.left)).toBeGreaterThan(0);
    },
  );
});

function linesOf({ meta }: RedisState): string[] {
  if (meta === undefined) return [];
  const { fenceUs, epochNumber, version, members, forgotten } = meta;
  const lines = [`a ${fenceUs} ${epochNumber} ${version}`];
  for (const name of Object.keys(forgotten)) lines.push(`f:${name}`);
  for (const [name, known] of Object.entries(members)) {
    const { contactUs, since, acknowledged, hasJoined, presented, reported } = known;
    const numbers = [contactUs, since, acknowledged, Number(hasJoined), presented, reported];
    lines.push(`m:${name} ${numbers.join(' ')}`);
  }
  return lines.sort();
}
