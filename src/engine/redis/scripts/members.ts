/**
 * The scripts about the members of a bucket. `presentMembers` is called when Redis answers that it
 * needs members: it opens an empty Redis, or joins a recovery. `listMembers` is for members whose
 * list is old, and for the command line. `forgetMembers` removes those that are dead. `leave` is
 * the last call of a member that has returned its leases and reported its usage.
 */

import forgetMembersLua from './forget-members.lua';
import leaveLua from './leave.lua';
import listMembersLua from './list-members.lua';
import { memberScript } from './lua.ts';
import presentMembersLua from './present-members.lua';
import type { CallAnswer, CallHeader } from './protocol.ts';
import { ANSWERS } from './records.ts';
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

/** Redis writes a few bytes for each member, and without them no counter is served. */
export const presentMembers = memberScript('presentMembers', presentMembersLua, {
  allowsOom: true,
});

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

export const listMembers = memberScript('listMembers', listMembersLua, { readsOnly: true });

const NOBODY: CallHeader = { member: '', reportedEpoch: '', membersVersion: 0, clockUs: 0 };
const MEMBER = /^[0-9a-f]{16}\.[0-9]{1,2}$/;

export function encodeListMembers(context: ScriptContext, bucket: number): ScriptCall {
  return { keys: [context.keys.members(bucket)], args: headerArguments(NOBODY, context) };
}

export function decodeListMembers(reply: unknown): MemberList {
  const { name } = listMembers;
  const [first, ...lines] = linesOf(reply, name);
  if (first === undefined) throw new InvalidReply(name, reply);
  const { at, count } = ANSWERS.LIST_HEADER;
  const fields = new Line(name, first);
  const list = {
    version: fields.integer(at.version, 0),
    clockUs: fields.integer(at.clockUs, 1),
    isRecovering: fields.boolean(at.isRecovering),
    members: lines.map((line) => {
      const { at, count } = ANSWERS.LIST_LINE;
      const fields = new Line(name, line);
      const member = {
        member: fields.text(at.member, MEMBER),
        silentMs: fields.integer(at.silentMs, 0),
        hasJoined: fields.boolean(at.hasJoined),
        acknowledged: fields.integer(at.acknowledged, 0),
        isAwaited: fields.boolean(at.isAwaited),
      };
      fields.requireCount(count);
      return member;
    }),
  };
  fields.requireCount(count);
  return list;
}

export const leave = memberScript('leave', leaveLua, { allowsOom: true });

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

export const forgetMembers = memberScript('forgetMembers', forgetMembersLua, { allowsOom: true });

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
  const number = fields.integer(0, 0);
  fields.requireCount(1);
  return number;
}
