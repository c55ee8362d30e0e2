/**
 * The scripts about the members of a bucket. `presentMembers` is called when Redis answers that it
 * needs members: it opens an empty Redis, or joins a recovery. `listMembers` is for members whose
 * list is old, and for the command line. `forgetMembers` removes those that are dead. `leave` is
 * the last call of a member that has returned its leases and reported its usage.
 */

import { defineScript } from '../../../redis/script.ts';
import { CLOCK, EPOCH, HEADER_ARGUMENTS, MEMBERSHIP, STORE_META } from './prelude.ts';
import type { CallAnswer, CallHeader } from './protocol.ts';
import { KEPT_US, LIVE_US } from './protocol-constants.ts';
import {
  decodeHeader,
  headerArguments,
  InvalidReply,
  Line,
  linesOf,
  type ScriptCall,
  type ScriptContext,
  text,
} from './reply.ts';

const PRESENT = `
local presented = {}
for i = ${HEADER_ARGUMENTS + 2}, #ARGV do presented[#presented + 1] = ARGV[i] end
local hasTokens = reportedEpoch ~= ''
if not bucket[1] then
  local upMs = match(call('INFO', 'server'), 'uptime_in_seconds:(%d+)') * 1000
  if #presented == 0 and not hasTokens and upMs < tonumber(ARGV[${HEADER_ARGUMENTS + 1}]) then
    return {header(1)}
  end
  epochNumber, version = nowMs, nowMs
  epoch = format('%s.%d', runId, epochNumber)
  if hasTokens or #presented > 0 then newEpoch() end
  call('HSET', metaKey, 'e', runId)
  storeMeta()
  bucket[1], bucket[2] = true, runId
end
return {header(register(presented))}
`;

export const presentMembers = defineScript(
  'presentMembers',
  `#!lua\n${CLOCK}${MEMBERSHIP}${PRESENT}`,
);

/** @param members that the member knows; Redis adds those that it does not know to a recovery */
export function encodePresentMembers(
  context: ScriptContext,
  bucket: number,
  header: CallHeader,
  members: readonly string[],
  graceMs: number,
): ScriptCall {
  const args = [...headerArguments(header, context), text(graceMs), ...members];
  return { keys: [context.keys.members(bucket)], args };
}

export function decodePresentMembers(reply: unknown): Omit<CallAnswer, 'counters'> {
  const lines = linesOf(reply, presentMembers.name);
  if (lines.length !== 1) throw new InvalidReply(presentMembers.name, reply);
  return decodeHeader(presentMembers.name, lines[0]);
}

/** A member, as the list says. */
export interface ListedMember {
  member: string;
  /** Since its last call, which is stored every half a second. */
  silentMs: number;
  hasJoined: boolean;
  /** The newest version of the list that it has acknowledged. */
  acknowledged: number;
  /** Whether a recovery waits for it. */
  isAwaited: boolean;
}

export interface MemberList {
  /** 0: Redis is empty. */
  version: number;
  clockUs: number;
  isRecovering: boolean;
  members: ListedMember[];
}

const LIST = `
local lines = {format('%d %d %d', version, clock, fence > 0 and 1 or 0)}
local everything = call('HGETALL', metaKey)
for i = 1, #everything, 2 do
  local member = match(everything[i], '^m:(.+)$')
  if member then
    local contact, added, known, hasJoined, _, reported = unpack(MEMBER, everything[i + 1])
    local isAwaited = fence > 0 and hasJoined == 1 and reported < epochNumber
    lines[#lines + 1] = format('%s %d %d %d %d', member, max(0, floor((clock - contact) / 1000)),
      hasJoined, known, isAwaited and 1 or 0)
  end
end
return lines
`;

export const listMembers = defineScript('listMembers', `#!lua flags=no-writes\n${CLOCK}${LIST}`, {
  readsOnly: true,
});

const NOBODY: CallHeader = { member: '', reportedEpoch: '', membersVersion: 0, clockUs: 0 };
const MEMBER = /^[0-9a-f]{16}\.[0-9]{1,2}$/;

export function encodeListMembers(context: ScriptContext, bucket: number): ScriptCall {
  return { keys: [context.keys.members(bucket)], args: headerArguments(NOBODY, context) };
}

export function decodeListMembers(reply: unknown): MemberList {
  const { name } = listMembers;
  const [first, ...lines] = linesOf(reply, name);
  if (first === undefined) throw new InvalidReply(name, reply);
  const fields = new Line(name, first);
  const list = {
    version: fields.integer(0),
    clockUs: fields.integer(1),
    isRecovering: fields.boolean(),
    members: lines.map((line) => {
      const fields = new Line(name, line);
      const member = {
        member: fields.text(MEMBER),
        silentMs: fields.integer(0),
        hasJoined: fields.boolean(),
        acknowledged: fields.integer(0),
        isAwaited: fields.boolean(),
      };
      fields.end();
      return member;
    }),
  };
  fields.end();
  return list;
}

/**
 * From now on the member counts as silent: nobody waits for it, to join or after a failover. Its
 * record stays until its usage no longer counts: a Redis that loses everything has nobody else to
 * report it. In a recovery, and if Redis may have lost what it has reported, nothing is done.
 */
const LEAVE = `
local canLeave = bucket[3] and bucket[2] == runId and fence == 0 and reportedEpoch == ${EPOCH}
if canLeave then
  local _, added, known, hasJoined, presented, reported = unpack(MEMBER, bucket[3])
  local keptUntil = tonumber(ARGV[${HEADER_ARGUMENTS + 1}]) * 1000
  local contact = min(clock - ${LIVE_US} - 1, keptUntil - ${KEPT_US})
  call('HSET', metaKey, 'm:' .. me,
    pack(MEMBER, contact, added, known, hasJoined, presented, reported))
  scannedAt = 0
  ${STORE_META}
end
return {canLeave and '1' or '0'}
`;

export const leave = defineScript('leave', `#!lua flags=allow-oom\n${CLOCK}${LEAVE}`);

/** @param usageEndMs when the usage of the member no longer counts, by the clock of Redis */
export function encodeLeave(
  context: ScriptContext,
  bucket: number,
  header: CallHeader,
  usageEndMs: number,
): ScriptCall {
  const args = [...headerArguments(header, context), text(usageEndMs)];
  return { keys: [context.keys.members(bucket)], args };
}

/** @returns false: a recovery goes on, and may wait for the member */
export function decodeLeave(reply: unknown): boolean {
  return decodeNumber(leave.name, reply) === 1;
}

const FORGET = `
local removed = 0
for _, field in ipairs(call('HKEYS', metaKey)) do
  local member = match(field, '^m:(.+)$')
  local name = ARGV[${HEADER_ARGUMENTS + 1}]
  if member and (member == name or match(member, '^[^.]+') == name) then
    call('HDEL', metaKey, field)
    call('HSET', metaKey, 'f:' .. member, format('%d', clock))
    removed = removed + 1
  end
end
if removed > 0 then
  nextVersion()
  scannedAt = 0
  storeMeta()
end
return {format('%d', removed)}
`;

export const forgetMembers = defineScript(
  'forgetMembers',
  `#!lua flags=allow-oom\n${CLOCK}${MEMBERSHIP}${FORGET}`,
);

/**
 * Recoveries wait for them no longer, and their leases stay deducted.
 * @param name a member, or a machine: the part of its members' names before the dot
 */
export function encodeForgetMembers(
  context: ScriptContext,
  bucket: number,
  name: string,
): ScriptCall {
  return {
    keys: [context.keys.members(bucket)],
    args: [...headerArguments(NOBODY, context), name],
  };
}

/** @returns how many there were */
export function decodeForgetMembers(reply: unknown): number {
  return decodeNumber(forgetMembers.name, reply);
}

function decodeNumber(script: string, reply: unknown): number {
  const lines = linesOf(reply, script);
  if (lines.length !== 1) throw new InvalidReply(script, reply);
  const fields = new Line(script, lines[0]);
  const number = fields.integer(0);
  fields.end();
  return number;
}
