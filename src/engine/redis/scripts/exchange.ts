/**
 * The script of token requests, returns, refunds and reports about counters with windows, its
 * arguments and its reply. An invalid reply throws.
 */

import exchangeLua from './exchange.lua';
import findLoss from './find-loss.lua';
import inheritAccount from './inherit-account.lua';
import { memberScript } from './lua.ts';
import {
  CALL_STATUS,
  type CallAnswer,
  type CallHeader,
  type CounterAnswer,
  type CounterMessage,
  MESSAGE_STATUS,
  NO_WINDOW,
  type TokenCheck,
} from './protocol.ts';
import { MESSAGES_PER_CALL, PAUSE_MAX_MS } from './protocol-constants.ts';
import recallLeases from './recall-leases.lua';
import {
  ANSWER_FLAG,
  ANSWER_STATE,
  ANSWERS,
  CHECK_FLAG,
  MESSAGE_FLAG,
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
import restoreUsage from './restore-usage.lua';
import settlePrevious from './settle-previous.lua';
import share from './share.lua';
import sharedWindow from './shared-window.lua';
import verifyCounter from './verify-counter.lua';

const files = {
  'find-loss.lua': findLoss,
  'inherit-account.lua': inheritAccount,
  'recall-leases.lua': recallLeases,
  'restore-usage.lua': restoreUsage,
  'settle-previous.lua': settlePrevious,
  'share.lua': share,
  'shared-window.lua': sharedWindow,
  'verify-counter.lua': verifyCounter,
};

/** Redis refuses the one at maxmemory; the other then serves the counters that exist. */
export const exchange = memberScript('exchange', exchangeLua, { files, creates: true });
export const exchangeAtMaxmemory = memberScript('exchangeAtMaxmemory', exchangeLua, {
  files,
  allowsOom: true,
  creates: false,
});

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
    appendMessage(numbers, message);
    for (const check of checks) appendCheck(numbers, check);
    if (message.refund > 0) appendRefund(numbers, message);
  }
  return { keys, args: [...headerArguments(header, context, numbers), context.predecessor ?? ''] };
}

function appendMessage(numbers: number[], message: CounterMessage): void {
  const { at } = MESSAGES.MESSAGE;
  const from = numbers.length;
  numbers[from + at.durationMs] = message.durationMs;
  numbers[from + at.window] = message.window;
  numbers[from + at.spent] = message.spent;
  numbers[from + at.previousSpent] = message.previousSpent;
  numbers[from + at.sequence] = message.sequence;
  numbers[from + at.firstSequence] = message.firstSequence;
  numbers[from + at.kept] = message.kept;
  numbers[from + at.rate] = Math.floor(message.rate);
  numbers[from + at.lastLimit] = message.lastLimit;
  numbers[from + at.messageFlags] = flagsOf(message);
  numbers[from + at.others] = message.others;
  numbers[from + at.previousKnown] = message.previousKnown;
  numbers[from + at.report] = message.report;
  numbers[from + at.inherits] = message.inherits;
  numbers[from + at.checkCount] = message.checks.length;
}

function appendCheck(
  numbers: number[],
  { cost, limit, isSliding, countsDenied }: TokenCheck,
): void {
  const { at } = MESSAGES.CHECK;
  const from = numbers.length;
  numbers[from + at.cost] = cost;
  numbers[from + at.checkLimit] = limit;
  numbers[from + at.checkFlags] =
    (isSliding ? CHECK_FLAG.isSliding : 0) + (countsDenied ? CHECK_FLAG.countsDenied : 0);
}

function appendRefund(numbers: number[], { refund, refundWindow }: CounterMessage): void {
  const { at } = MESSAGES.REFUND;
  const from = numbers.length;
  numbers[from + at.refund] = refund;
  numbers[from + at.refundWindow] = refundWindow;
}

function flagsOf(message: CounterMessage): number {
  const isSliding = message.isSliding || message.checks.some((check) => check.isSliding);
  return (
    (message.wantsLease ? MESSAGE_FLAG.wantsLease : 0) +
    (message.recalls ? MESSAGE_FLAG.recalls : 0) +
    (message.isStored ? MESSAGE_FLAG.isStored : 0) +
    (message.hasPrevious ? MESSAGE_FLAG.hasPrevious : 0) +
    (isSliding ? MESSAGE_FLAG.isSliding : 0) +
    (message.refund > 0 ? MESSAGE_FLAG.hasRefund : 0)
  );
}

/** @param messages of the call */
export function decodeExchange(messages: readonly CounterMessage[], reply: unknown): CallAnswer {
  const lines = linesOf(reply, exchange.name);
  if (lines.length === 0) throw new InvalidReply(exchange.name, reply);
  const header = decodeHeader(exchange.name, lines[0]);
  const count = header.status === CALL_STATUS.done ? messages.length : 0;
  if (lines.length !== count + 1) throw new InvalidReply(exchange.name, reply);
  const counters: CounterAnswer[] = [];
  for (let at = 0; at < count; at++) counters.push(decodeCounter(messages[at], lines[at + 1]));
  return { ...header, counters };
}

function decodeCounter(message: CounterMessage, line: string): CounterAnswer {
  const { at, count } = ANSWERS.ANSWER;
  const fields = new Line(exchange.name, line);
  const sequence = fields.integer(at.sequence, message.sequence, message.sequence);
  const status = fields.integer(at.status, MESSAGE_STATUS.done, MESSAGE_STATUS.full);
  if (status !== MESSAGE_STATUS.done && status !== MESSAGE_STATUS.retryRefund) {
    fields.requireCount(ANSWERS.REFUSAL.count);
    return { ...NOTHING_DONE, sequence, status };
  }
  const { isStored, mayDeny, pause } = ANSWER_FLAG;
  const pauseMaxMs = message.wantsLease ? PAUSE_MAX_MS : 0;
  const flags = fields.integer(at.flags, 0, isStored + mayDeny + pause * pauseMaxMs);
  const answer: CounterAnswer = {
    ...NOTHING_DONE,
    sequence,
    status,
    window: fields.integer(at.window, Math.max(0, message.window)),
    leftUs: fields.integer(at.leftUs, 0, message.durationMs * 1_000),
    isStored: (flags & isStored) !== 0,
    mayDeny: (flags & mayDeny) !== 0,
    pauseMs: Math.floor(flags / pause),
    others: fields.signed(at.others),
    othersDeducted: fields.signed(at.othersDeducted),
    lent: fields.integer(at.lent, 0, message.wantsLease ? undefined : 0),
    lentLimit: smallestLimit(message),
    refunded: fields.integer(at.refunded, 0, message.refund),
    served: Array.from(fields.text(at.served, VERDICTS).slice(1), Number),
  };
  if (fields.hasMoreThan(count)) {
    const { at: atEnd, count: endCount } = ANSWERS.ANSWER_END;
    const { isUnknown, isMissing, writtenOff } = ANSWER_STATE;
    answer.previousUsage = fields.signed(count + atEnd.previousUsage);
    answer.previousKnownUsage = fields.signed(count + atEnd.previousKnownUsage);
    answer.writtenOff = fields.integer(count + atEnd.writtenOff, 0);
    const state = fields.integer(count + atEnd.state, 0, isUnknown + isMissing + writtenOff);
    answer.isUnknown = (state & isUnknown) !== 0;
    answer.isMissing = (state & isMissing) !== 0;
    answer.wasWrittenOff = (state & writtenOff) !== 0;
    answer.report = fields.integer(count + atEnd.report, 0);
    fields.requireCount(count + endCount);
  }
  if (answer.served.length !== message.checks.length) throw new InvalidReply(exchange.name, line);
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
  previousUsage: 0,
  previousKnownUsage: 0,
  lent: 0,
  lentLimit: 0,
  refunded: 0,
  writtenOff: 0,
  isUnknown: false,
  isMissing: false,
  wasWrittenOff: false,
  report: 0,
  served: [],
};
