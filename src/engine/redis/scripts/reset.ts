/** The script that resets counters of an identity, its arguments and its reply. */

import type { Identity } from '../../../core/hash.ts';
import { keysOfIdentity } from './inspect.ts';
import { memberScript } from './lua.ts';
import type { CallHeader } from './protocol.ts';
import { ANSWERS, NAMES } from './records.ts';
import {
  headerArguments,
  InvalidReply,
  Line,
  linesOf,
  type ScriptCall,
  type ScriptContext,
  text,
} from './reply.ts';
import resetLua from './reset.lua';

export const reset = memberScript('reset', resetLua, { allowsOom: true });

/** Which counters of an identity are reset. */
export interface ResetSelector {
  /** Undefined: those of all durations. */
  durationsMs: readonly number[] | undefined;
  windows: boolean;
  gcra: boolean;
}

/** Leases should have been recalled before: usage that is in no report stays counted. */
export function encodeReset(
  context: ScriptContext,
  header: CallHeader,
  identity: Identity,
  { durationsMs, windows, gcra }: ResetSelector,
): ScriptCall {
  const kinds = (windows ? NAMES.KIND_WINDOWS : '') + (gcra ? NAMES.KIND_GCRA : '-');
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
  const { at, count: fieldCount } = ANSWERS.RESET_ANSWER;
  const fields = new Line(reset.name, lines[0]);
  const isRecovering = fields.boolean(at.isRecovering);
  const count = fields.integer(at.count, 0);
  fields.requireCount(fieldCount);
  return isRecovering ? undefined : count;
}
