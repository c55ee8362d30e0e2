/**
 * The scripts of reservations and leases, their arguments and their replies. `beginHold` records
 * one, and `endHold` does everything else. Each may be repeated if its answer was lost. An invalid
 * reply throws.
 */

import type { Identity } from '../../../core/hash.ts';
import { RULE, type RuleNumber } from '../../../core/window-rules.ts';
import { HOLD_KIND, type HoldKind, type Secret } from '../../hold-id.ts';
import beginHoldLua from './begin-hold.lua';
import endHoldLua from './end-hold.lua';
import holdState from './hold-state.lua';
import { hexOf, identityFromHex, nameOfHold, parseNameOfHold } from './keys.ts';
import { memberScript } from './lua.ts';
import { CALL_STATUS, type CallAnswer, type CallHeader } from './protocol.ts';
import {
  ANSWERS,
  BEGIN_OPERATION,
  END_OPERATION,
  HOLD_FLAG,
  HOLD_STATUS,
  MESSAGES,
} from './records.ts';
import {
  decodeHeader,
  headerArguments,
  InvalidReply,
  Line,
  linesOf,
  type ScriptCall,
  type ScriptContext,
} from './reply.ts';

const files = { 'hold-state.lua': holdState };

/** Redis refuses the first at maxmemory; the other then answers what is recorded already. */
export const beginHold = memberScript('beginHold', beginHoldLua, { files, creates: true });
export const beginHoldAtMaxmemory = memberScript('beginHoldAtMaxmemory', beginHoldLua, {
  files,
  allowsOom: true,
  creates: false,
});
export const endHold = memberScript('endHold', endHoldLua, { files, allowsOom: true });

/** Where the record of a hold lies, and how it is found there. */
export interface HoldName {
  kind: HoldKind;
  bucket: number;
  secret: Secret;
  /** In the list of a reservation, whose records have the same secret; else 0. */
  number: number;
}

/** What a record says about a hold when it begins. */
export interface HoldTerms extends HoldName {
  identity: Identity;
  /** The first two words of the hash state of its namespace. */
  namespace: readonly [number, number];
  limit: number;
  /** The tokens that are deducted, or in use. */
  tokens: number;
  /** Of a reservation: what its check was, and where its tokens were deducted. Else 0. */
  durationMs: number;
  rule: RuleNumber;
  window: number;
  /** A lower bound of the time of the deduction: Unix time, µs. */
  reservedUs: number;
  /** Whether the tokens stay counted when it expires. */
  chargesAtExpiry: boolean;
  /** Of the first of a list: where the others lie, as the engine defines it. */
  others: readonly number[];
}

/** A call that begins a hold. */
export type BeginHold = { operation: 'record' | 'acquire'; terms: HoldTerms; ttlMs: number };
/** @property expiresAt of a live hold that Redis may have lost: Unix time, ms */
export type ReportHold = { operation: 'report'; terms: HoldTerms; expiresAt: number };
export type EndHold =
  | { operation: 'find' | 'release'; name: HoldName }
  | { operation: 'settle' | 'drop'; name: HoldName; cost: number }
  | { operation: 'renew'; name: HoldName; ttlMs: number };
/** A call about the holds of a bucket, or of an identity. */
export type EndHolds =
  | { operation: 'expire'; bucket: number }
  | { operation: 'list' | 'endLeases'; bucket: number; identity: Identity };

export interface HoldAnswer extends Omit<CallAnswer, 'counters'> {
  /** One of HOLD_STATUS. Without `done`, only `expired` and `nextMs` mean something. */
  holdStatus: number;
  /** Whether it began, or was live before the call. */
  isGranted: boolean;
  /** The sum of the live leases of its identity. */
  inUse: number;
  limit: number;
  /** Unix time, ms. */
  expiresAt: number;
  charged: number;
  released: number;
  isLate: boolean;
  namespace: readonly [number, number];
  /** Of a reservation: those of its check. */
  durationMs: number;
  rule: RuleNumber;
  /** Undefined without a hold. */
  identity: Identity | undefined;
  others: number[];
  /** How many holds of the bucket were ended for the call, because their time was over. */
  expired: number;
  /** When the next hold of the bucket expires, Unix time in ms; 0: none is live. */
  nextMs: number;
}

export interface HoldsAnswer extends HoldAnswer {
  /** Live holds, or leases that were ended. */
  count: number;
  reservedTokens: number;
  /** The first LISTED_HOLDS_MAX to expire. */
  listed: ListedHold[];
}

export interface ListedHold {
  kind: HoldKind;
  secret: Secret;
  /** As in `HoldName`. */
  number: number;
  tokens: number;
  limit: number;
  durationMs: number;
  rule: RuleNumber;
  expiresAt: number;
}

/** @param capacity how many holds may be live in the bucket */
export function encodeBeginHold(
  context: ScriptContext,
  header: CallHeader,
  { terms, ...hold }: BeginHold | ReportHold,
  capacity: number,
): ScriptCall {
  const { keys } = context;
  const { kind, bucket, identity, secret, number } = terms;
  if (keys.bucketOf(identity) !== bucket) throw new Error('a hold of another bucket');
  const { at } = MESSAGES.BEGIN_HOLD;
  const numbers: number[] = [];
  numbers[at.operation] = BEGIN_OPERATION[hold.operation];
  numbers[at.kind] = kind;
  numbers[at.limit] = terms.limit;
  numbers[at.durationMs] = terms.durationMs;
  numbers[at.rule] = terms.rule;
  numbers[at.window] = terms.window;
  numbers[at.reservedUs] = terms.reservedUs;
  numbers[at.tokens] = terms.tokens;
  numbers[at.ttlMs] = hold.operation === 'report' ? 0 : hold.ttlMs;
  numbers[at.expiresMs] = hold.operation === 'report' ? hold.expiresAt : 0;
  numbers[at.namespace0] = terms.namespace[0];
  numbers[at.namespace1] = terms.namespace[1];
  // Machines also report the usage of the counter, in which the tokens of the reservation are. A
  // report may also come after the reservation has ended: then they have returned already.
  numbers[at.flags] =
    (terms.chargesAtExpiry ? HOLD_FLAG.charges : 0) +
    (hold.operation === 'report' ? HOLD_FLAG.isVoided : 0);
  numbers[at.capacity] = capacity;
  const name = nameOfHold(kind, secret, number);
  return {
    keys: [
      keys.members(bucket),
      keys.hold(bucket, name),
      keys.holdsOf(identity),
      keys.holdSums(identity),
      keys.noHold(bucket),
    ],
    args: [
      ...headerArguments(header, context, numbers),
      ...[name, hexOf(identity), terms.others.join(',')],
    ],
  };
}

export function encodeEndHold(
  context: ScriptContext,
  header: CallHeader,
  call: EndHold | EndHolds,
  capacity: number,
): ScriptCall {
  const { keys } = context;
  const { at } = MESSAGES.END_HOLD;
  const numbers: number[] = [];
  numbers[at.operation] = END_OPERATION[call.operation];
  numbers[at.cost] = 'cost' in call ? call.cost : 0;
  numbers[at.ttlMs] = 'ttlMs' in call ? call.ttlMs : 0;
  numbers[at.capacity] = capacity;
  const first = headerArguments(header, context, numbers);
  if ('name' in call) {
    const { kind, bucket, secret, number } = call.name;
    const name = nameOfHold(kind, secret, number);
    const holdKeys = [keys.members(bucket), keys.noHold(bucket), keys.hold(bucket, name)];
    return { keys: holdKeys, args: [...first, name] };
  }
  const bucketKeys = [keys.members(call.bucket), keys.noHold(call.bucket)];
  if (call.operation === 'expire') return { keys: bucketKeys, args: [...first, ''] };
  const { identity } = call;
  return {
    keys: [...bucketKeys, keys.holdsOf(identity), keys.holdSums(identity)],
    args: [...first, hexOf(identity)],
  };
}

export function decodeBeginHold(reply: unknown): HoldAnswer {
  return decodeHold(beginHold.name, linesOf(reply, beginHold.name), 0);
}

export function decodeEndHold(reply: unknown): HoldAnswer {
  return decodeHold(endHold.name, linesOf(reply, endHold.name), 0);
}

/** The reply to `list` and `endLeases`. */
export function decodeEndHolds(reply: unknown): HoldsAnswer {
  const { name } = endHold;
  const lines = linesOf(reply, name);
  const answer = { ...decodeHold(name, lines, lines.length), count: 0, reservedTokens: 0 };
  const [, , sums, ...holds] = lines;
  if (sums === undefined) return { ...answer, listed: [] };
  const { at, count } = ANSWERS.HOLDS_HEADER;
  const fields = new Line(name, sums);
  answer.count = fields.integer(at.count, 0);
  answer.reservedTokens = fields.integer(at.reserved, 0);
  answer.inUse = fields.integer(at.inUse, 0);
  fields.requireCount(count);
  return { ...answer, listed: holds.map(decodeListed) };
}

/** @param more how many lines may follow those of the hold */
function decodeHold(script: string, lines: readonly string[], more: number): HoldAnswer {
  const [first, line] = lines;
  if (first === undefined) throw new InvalidReply(script, lines);
  const header = decodeHeader(script, first);
  if (header.status !== CALL_STATUS.done) return { ...header, ...NOTHING };
  if (line === undefined || lines.length > 2 + more) throw new InvalidReply(script, lines);
  const { at, count } = ANSWERS.HOLD_ANSWER;
  const fields = new Line(script, line);
  const identity = fields.text(at.identity, /^(?:-|[0-9a-f]{32})$/);
  const others = fields.text(at.others, /^(?:-|[0-9]+(?:,[0-9]+)*)$/);
  const answer = {
    holdStatus: fields.integer(at.status, HOLD_STATUS.done, HOLD_STATUS.full),
    isGranted: fields.boolean(at.isGranted),
    inUse: fields.integer(at.inUse, 0),
    limit: fields.integer(at.limit, 0),
    expiresAt: fields.integer(at.expiresMs, 0),
    charged: fields.integer(at.charged, 0),
    released: fields.integer(at.released, 0),
    isLate: fields.boolean(at.isLate),
    namespace: [fields.signed(at.namespace0), fields.signed(at.namespace1)] as const,
    durationMs: fields.integer(at.durationMs, 0),
    rule: ruleAt(fields, at.rule),
    identity: identity === '-' ? undefined : identityFromHex(identity),
    others: others === '-' ? [] : others.split(',').map(Number),
    expired: fields.integer(at.expired, 0),
    nextMs: fields.integer(at.nextMs, 0),
    // If it came first, V8 would make a slow object, by 25 µs.
    ...header,
  };
  fields.requireCount(count);
  return answer;
}

function decodeListed(line: string): ListedHold {
  const { at, count } = ANSWERS.HOLDS_LINE;
  const fields = new Line(endHold.name, line);
  const hold = {
    ...parseNameOfHold(fields.text(at.hold, /^\S+$/)),
    kind: fields.integer(at.kind, HOLD_KIND.reservation, HOLD_KIND.lease) as HoldKind,
    tokens: fields.integer(at.tokens, 0),
    limit: fields.integer(at.limit, 0),
    durationMs: fields.integer(at.durationMs, 0),
    rule: ruleAt(fields, at.rule),
    expiresAt: fields.integer(at.expiresMs, 0),
  };
  fields.requireCount(count);
  return hold;
}

function ruleAt(fields: Line, at: number): RuleNumber {
  return fields.integer(at, 0, Math.max(...Object.values(RULE))) as RuleNumber;
}

const NOTHING = {
  holdStatus: HOLD_STATUS.recovering as number,
  isGranted: false,
  inUse: 0,
  limit: 0,
  expiresAt: 0,
  charged: 0,
  released: 0,
  isLate: false,
  namespace: [0, 0] as const,
  durationMs: 0,
  rule: RULE.fixed,
  identity: undefined,
  others: [],
  expired: 0,
  nextMs: 0,
};
