/** The arguments and the reply of the script `exchange`. An invalid reply throws. */

import {
  CALL_STATUS,
  type CallAnswer,
  type CallHeader,
  type CounterAnswer,
  type CounterMessage,
  MESSAGE_STATUS,
  NO_WINDOW,
} from './protocol.ts';
import { MESSAGES_PER_CALL, PAUSE_MAX_MS } from './protocol-constants.ts';
import {
  decodeHeader,
  headerArguments,
  InvalidReply,
  Line,
  linesOf,
  type ScriptCall,
  type ScriptContext,
} from './reply.ts';

const NAME = 'exchange';
const VERDICTS = /^s[0-3]*$/;

/** @param messages of one bucket, at most MESSAGES_PER_CALL; none: a heartbeat */
export function encodeExchange(
  context: ScriptContext,
  bucket: number,
  header: CallHeader,
  messages: readonly CounterMessage[],
): ScriptCall {
  if (messages.length > MESSAGES_PER_CALL) throw new Error(`${messages.length} messages in a call`);
  const keys = [context.keys.members(bucket)];
  const numbers: number[] = [];
  for (const message of messages) {
    const { identity, durationMs, checks } = message;
    if (context.keys.bucketOf(identity) !== bucket) throw new Error('a message of another bucket');
    keys.push(context.keys.counter(identity, durationMs));
    numbers.push(
      durationMs,
      message.window,
      message.spent,
      message.previousSpent,
      message.sequence,
      message.firstSequence,
      message.kept,
      Math.floor(message.rate),
      message.lastLimit,
      flagsOf(message),
      message.others,
      message.previousKnown,
      message.report,
      message.inherits,
      checks.length,
    );
    for (const { cost, limit, isSliding, countsDenied } of checks) {
      numbers.push(cost, limit, (isSliding ? 1 : 0) + (countsDenied ? 2 : 0));
    }
    if (message.refund > 0) numbers.push(message.refund, message.refundWindow);
  }
  return { keys, args: [...headerArguments(header, context, numbers), context.predecessor ?? ''] };
}

function flagsOf(message: CounterMessage): number {
  const isSliding = message.isSliding || message.checks.some((check) => check.isSliding);
  return (
    (message.wantsLease ? 1 : 0) +
    (message.recalls ? 2 : 0) +
    (message.isStored ? 4 : 0) +
    (message.hasPrevious ? 8 : 0) +
    (isSliding ? 16 : 0) +
    (message.refund > 0 ? 32 : 0)
  );
}

/** @param messages of the call */
export function decodeExchange(messages: readonly CounterMessage[], reply: unknown): CallAnswer {
  const lines = linesOf(reply, NAME);
  if (lines.length === 0) throw new InvalidReply(NAME, reply);
  const header = decodeHeader(NAME, lines[0]);
  const count = header.status === CALL_STATUS.done ? messages.length : 0;
  if (lines.length !== count + 1) throw new InvalidReply(NAME, reply);
  const counters: CounterAnswer[] = [];
  for (let at = 0; at < count; at++) counters.push(decodeCounter(messages[at], lines[at + 1]));
  return { ...header, counters };
}

function decodeCounter(message: CounterMessage, line: string): CounterAnswer {
  const fields = new Line(NAME, line);
  const sequence = fields.integer(message.sequence, message.sequence);
  const status = fields.integer(MESSAGE_STATUS.done, MESSAGE_STATUS.full);
  if (status !== MESSAGE_STATUS.done && status !== MESSAGE_STATUS.retryRefund) {
    fields.end();
    return { ...NOTHING_DONE, sequence, status };
  }
  const window = fields.integer(Math.max(0, message.window));
  const leftUs = fields.integer(0, message.durationMs * 1_000);
  const flags = fields.integer(0, 3 + (message.wantsLease ? 4 * PAUSE_MAX_MS : 0));
  const answer: CounterAnswer = {
    ...NOTHING_DONE,
    sequence,
    status,
    window,
    leftUs,
    isStored: flags % 2 === 1,
    mayDeny: flags % 4 >= 2,
    pauseMs: Math.floor(flags / 4),
    others: fields.signed(),
    othersDeducted: fields.signed(),
    lent: fields.integer(0, message.wantsLease ? undefined : 0),
    lentLimit: smallestLimit(message),
    recall: fields.integer(0),
    refunded: fields.integer(0, message.refund),
    served: Array.from(fields.text(VERDICTS).slice(1), Number),
  };
  if (fields.hasMore) {
    answer.previousUse = fields.signed();
    answer.previousKnownUse = fields.signed();
    answer.writtenOff = fields.integer(0);
    const state = fields.integer(0, 7);
    answer.isUnknown = (state & 1) !== 0;
    answer.isMissing = (state & 2) !== 0;
    answer.wasWrittenOff = (state & 4) !== 0;
    answer.report = fields.integer(0);
  }
  fields.end();
  if (answer.served.length !== message.checks.length) throw new InvalidReply(NAME, line);
  return answer;
}

function smallestLimit({ checks, lastLimit }: CounterMessage): number {
  return checks.length === 0 ? lastLimit : Math.min(...checks.map(({ limit }) => limit));
}

const NOTHING_DONE: CounterAnswer = {
  sequence: 0,
  status: MESSAGE_STATUS.done,
  window: NO_WINDOW,
  leftUs: 0,
  isStored: false,
  mayDeny: false,
  pauseMs: 0,
  others: 0,
  othersDeducted: 0,
  previousUse: 0,
  previousKnownUse: 0,
  lent: 0,
  lentLimit: 0,
  recall: 0,
  refunded: 0,
  writtenOff: 0,
  isUnknown: false,
  isMissing: false,
  wasWrittenOff: false,
  report: 0,
  served: [],
};
