/** The script that returns the counters of an identity, its arguments and its reply. */

import type { Identity } from '../../../core/hash.ts';
import inspectLua from './inspect.lua';
import { memberScript } from './lua.ts';
import type { CallHeader, StoredCounter } from './protocol.ts';
import { ANSWERS, NAMES } from './records.ts';
import {
  headerArguments,
  InvalidReply,
  Line,
  linesOf,
  type ScriptCall,
  type ScriptContext,
} from './reply.ts';

export const inspect = memberScript('inspect', inspectLua, { readsOnly: true });

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
  const { at, count } = ANSWERS.INSPECT_HEADER;
  const fields = new Line(inspect.name, first);
  const answer = {
    clockUs: fields.integer(at.clockUs, 1),
    isRecovering: fields.boolean(at.isRecovering),
    counters: lines.map(decodeStored),
  };
  fields.requireCount(count);
  return answer;
}

function decodeStored(line: string): StoredCounter {
  const { at, count } = ANSWERS.INSPECT_LINE;
  const fields = new Line(inspect.name, line);
  const counter = {
    isGcra: fields.text(at.kind, /^[wg]$/) === NAMES.KIND_GCRA,
    durationMs: fields.integer(at.durationMs, 1),
    limit: fields.integer(at.limit, 0),
    newest: fields.integer(at.newest, 0),
    current: fields.signed(at.current),
    previous: fields.signed(at.previous),
    lent: fields.signed(at.lent),
  };
  fields.requireCount(count);
  return counter;
}
