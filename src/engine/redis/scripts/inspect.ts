/**
 * The script that returns the counters of an identity. It changes nothing, and needs no member. The
 * index names durations; their counters may have expired.
 */

import type { Identity } from '../../../core/hash.ts';
import { defineScript } from '../../../redis/script.ts';
import { CLOCK } from './prelude.ts';
import type { CallHeader, StoredCounter } from './protocol.ts';
import {
  headerArguments,
  InvalidReply,
  Line,
  linesOf,
  type ScriptCall,
  type ScriptContext,
} from './reply.ts';

const INSPECT = `
local lines = {format('%d %d', clock, fence > 0 and 1 or 0)}
local head = KEYS[3]:sub(1, -2)
for _, name in ipairs(call('HKEYS', KEYS[2])) do
  local kind, digits = match(name, '^([wg]):(%d+)$')
  local duration = tonumber(digits)
  if kind == 'w' then
    local w = floor(nowMs / duration)
    local u, r, limit, pu, pr, pLimit, _ = 0, 0, 0, 0, 0, 0, 0
    local stored = call('HGET', head .. digits .. ':' .. w, 'a')
    local previous = call('HGET', head .. digits .. ':' .. (w - 1), 'a')
    local notices = 0
    if stored then u, r, _, _, _, limit, notices = unpack('<ddddddd', stored) end
    if previous then pu, pr, _, _, _, pLimit = unpack('<ddddddd', previous) end
    -- A limit of 0: nothing was allowed, or nothing since a reset.
    if u ~= 0 or limit ~= 0 or notices >= 64 then
      lines[#lines + 1] = format('w %s %d %d %d %d %d', digits, limit, w, r, pu,
        u - r + floor(notices / 64))
    elseif pu ~= 0 or pLimit ~= 0 then
      lines[#lines + 1] = format('w %s %d %d %d %d %d', digits, pLimit, w - 1, pr, 0, pu - pr)
    end
  else
    local stored = call('GET', KEYS[4]:sub(1, -2) .. digits)
    local newest, current, limit = 0, 0, 0
    if stored then newest, current, limit = unpack('<ddd', stored) end
    if newest > nowMs then
      lines[#lines + 1] = format('g %s %d %d %d %d 0', digits, limit, newest, current, current)
    end
  end
end
return lines
`;

export const inspect = defineScript('inspect', `#!lua flags=no-writes\n${CLOCK}${INSPECT}`, {
  readsOnly: true,
});

/** The keys of all counters of an identity. Two of them never exist: see `KeySpace.counter`. */
export function keysOfIdentity({ keys }: ScriptContext, identity: Identity): string[] {
  return [
    keys.members(keys.bucketOf(identity)),
    keys.index(identity),
    keys.counter(identity, 0),
    keys.gcra(identity, 0),
  ];
}

export function encodeInspect(
  context: ScriptContext,
  header: CallHeader,
  identity: Identity,
): ScriptCall {
  return { keys: keysOfIdentity(context, identity), args: headerArguments(header, context) };
}

export interface InspectAnswer {
  clockUs: number;
  /** Usage may be missing that members have not reported yet. */
  isRecovering: boolean;
  counters: StoredCounter[];
}

export function decodeInspect(reply: unknown): InspectAnswer {
  const [first, ...lines] = linesOf(reply, inspect.name);
  if (first === undefined) throw new InvalidReply(inspect.name, reply);
  const fields = new Line(inspect.name, first);
  const answer = {
    clockUs: fields.integer(1),
    isRecovering: fields.boolean(),
    counters: lines.map(decodeStored),
  };
  fields.end();
  return answer;
}

function decodeStored(line: string): StoredCounter {
  const fields = new Line(inspect.name, line);
  const counter = {
    isGcra: fields.text(/^[wg]$/) === 'g',
    durationMs: fields.integer(1),
    limit: fields.integer(0),
    newest: fields.integer(0),
    current: fields.signed(),
    previous: fields.signed(),
    lent: fields.signed(),
  };
  fields.end();
  return counter;
}
