/**
 * The script that resets counters of an identity. Members count on from where they are: the script
 * stores the use of each as the base from which it counts, and keeps tokens in leases deducted.
 */

import type { Identity } from '../../../core/hash.ts';
import { defineScript } from '../../../redis/script.ts';
import { keysOfIdentity } from './inspect.ts';
import { CLEARED, CLOCK, HEADER_ARGUMENTS, MEMBERSHIP } from './prelude.ts';
import type { CallHeader } from './protocol.ts';
import { BUCKET_KEPT_MS } from './protocol-constants.ts';
import {
  headerArguments,
  InvalidReply,
  Line,
  linesOf,
  type ScriptCall,
  type ScriptContext,
  text,
} from './reply.ts';

const RESET = `
local COUNTER, RECORD = '<ddddddd', '<dddddddd'
if fence > 0 then return {'1 0'} end

-- Returns whether the window had usage, or an allowed check.
local function resetWindow(key, notice, isOver)
  local everything = call('HGETALL', key)
  local u, r, rates, number, recalledAt, limit, notices = 0, 0, 0, 0, 0, 0, 0
  local waiters = ''
  for i = 1, #everything, 2 do
    if everything[i] == 'w' then waiters = everything[i + 1] end
    if everything[i] == 'a' then
      u, r, rates, number, recalledAt, limit, notices = unpack(COUNTER, everything[i + 1])
    end
  end
  local hadUsage = u ~= 0 or limit ~= 0
  u, r, rates = 0, 0, 0
  for i = 1, #everything, 2 do
    local member = everything[i]
    if #member > 1 then
      local d, s, sequence, base, rate, marks, first, last = unpack(RECORD, everything[i + 1])
      marks = marks % 2 + (marks % 8 >= 4 and marks - marks % 4 or 0)
      -- What a window that is over was used for was used before the reset, reported or not.
      if isOver then d, s, base = 0, 0, ${CLEARED} else d, s, base = d - s, 0, base + s end
      u, rates = u + d, rates + rate
      if marks < 4 then first, last = 0, 0 end
      if marks % 2 == 1 then r = r + d end
      call('HSET', key, member, pack(RECORD, d, s, sequence, base, rate, marks, first, last))
      publish(member, 'reset ' .. notice)
    end
  end
  if #everything > 0 then
    -- Members that must report still must.
    notices = notices - notices % 32
    call('HSET', key, 'a', pack(COUNTER, u, r, rates, number, recalledAt, 0, notices))
    call('HDEL', key, 'w', 'k', 'x')
  end
  for member in string.gmatch(waiters, '[^,]+') do publish(member, 'wake ' .. notice) end
  return hadUsage
end

local isMeant = {}
for i = ${HEADER_ARGUMENTS + 3}, #ARGV do isMeant[ARGV[i]] = true end
local kinds, meansAll = ARGV[${HEADER_ARGUMENTS + 1}], ARGV[${HEADER_ARGUMENTS + 2}] == '1'
local identity = KEYS[2]:sub(-32)
local count = 0
for _, name in ipairs(call('HKEYS', KEYS[2])) do
  local kind, digits = match(name, '^([wg]):(%d+)$')
  if kinds:find(kind, 1, true) and (meansAll or isMeant[digits]) then
    if kind == 'w' then
      local w = floor(nowMs / tonumber(digits))
      local hadUsage = false
      for window = w - 1, w do
        local key = KEYS[3]:sub(1, -2) .. digits .. ':' .. window
        local notice = identity .. ' ' .. digits .. ' ' .. max(0, window)
        hadUsage = resetWindow(key, notice, window < w) or hadUsage
      end
      if hadUsage then count = count + 1 end
    else
      local key = KEYS[4]:sub(1, -2) .. digits
      local stored = call('GET', key)
      if stored then
        local newest = unpack('<d', stored)
        local keptUntil = #stored < 48 and newest + ${BUCKET_KEPT_MS} or unpack('<d', stored, 33)
        if newest > nowMs then count = count + 1 end
        -- A missing bucket would be restored by the members that know it.
        call('SET', key, pack('<dddddd', nowMs, 0, 0, 0, keptUntil, 0), 'PXAT', keptUntil)
      end
      call('HDEL', KEYS[2], name)
    end
  end
end
return {'0 ' .. count}
`;

export const reset = defineScript('reset', `#!lua flags=allow-oom\n${CLOCK}${MEMBERSHIP}${RESET}`);

/** Which counters of an identity are reset. */
export interface ResetSelector {
  /** Undefined: those of all durations. */
  durationsMs: readonly number[] | undefined;
  windows: boolean;
  gcra: boolean;
}

/** Leases should have been recalled before: use that is in no report stays counted. */
export function encodeReset(
  context: ScriptContext,
  header: CallHeader,
  identity: Identity,
  { durationsMs, windows, gcra }: ResetSelector,
): ScriptCall {
  const kinds = (windows ? 'w' : '') + (gcra ? 'g' : '-');
  const args = [kinds, durationsMs === undefined ? '1' : '0', ...(durationsMs ?? []).map(text)];
  return {
    keys: keysOfIdentity(context, identity),
    args: [...headerArguments(header, context), ...args],
  };
}

/** @returns how many counters there were; undefined: Redis recovers, and nothing was changed */
export function decodeReset(reply: unknown): number | undefined {
  const lines = linesOf(reply, reset.name);
  if (lines.length !== 1) throw new InvalidReply(reset.name, reply);
  const fields = new Line(reset.name, lines[0]);
  const isRecovering = fields.boolean();
  const count = fields.integer(0);
  fields.end();
  return isRecovering ? undefined : count;
}
