/** The script of GCRA checks, refunds and reports, its arguments and its reply. */

import { AMOUNT_MAX } from '../../../core/constants.ts';
import gcraLua from './gcra.lua';
import { memberScript } from './lua.ts';
import {
  CALL_STATUS,
  type CallAnswer,
  type CallHeader,
  type GcraAnswer,
  type GcraMessage,
  type GcraReport,
  MESSAGE_STATUS,
} from './protocol.ts';
import { MESSAGES_PER_CALL } from './protocol-constants.ts';
import { ANSWERS, GCRA_KIND, MESSAGES } from './records.ts';
import {
  decodeHeader,
  headerArguments,
  InvalidReply,
  Line,
  linesOf,
  type ScriptCall,
  type ScriptContext,
} from './reply.ts';

/** Redis refuses the one at maxmemory; the other then serves the buckets that exist. */
export const gcra = memberScript('gcra', gcraLua, { creates: true });
export const gcraAtMaxmemory = memberScript('gcraAtMaxmemory', gcraLua, {
  allowsOom: true,
  creates: false,
});

/** @param messages of one bucket, at most MESSAGES_PER_CALL */
export function encodeGcra(
  context: ScriptContext,
  bucket: number,
  header: CallHeader,
  messages: readonly (GcraMessage | GcraReport)[],
): ScriptCall {
  if (messages.length > MESSAGES_PER_CALL) throw new Error(`${messages.length} messages in a call`);
  const keys = [context.keys.members(bucket)];
  const numbers: number[] = [];
  for (const message of messages) {
    const { identity, durationMs } = message;
    if (context.keys.bucketOf(identity) !== bucket) throw new Error('a message of another bucket');
    keys.push(context.keys.gcra(identity, durationMs));
    if (isReport(message)) appendReport(numbers, message);
    else appendMessage(numbers, message);
  }
  return { keys, args: headerArguments(header, context, numbers) };
}

function appendMessage(numbers: number[], message: GcraMessage): void {
  const { limit, burst, cost, countsDenied, known } = message;
  const { check, countedCheck, refund } = GCRA_KIND;
  const isRefund = cost < 0;
  const { at } = MESSAGES.GCRA_MESSAGE;
  const from = numbers.length;
  numbers[from + at.durationMs] = message.durationMs;
  numbers[from + at.kind] = isRefund ? refund : countsDenied ? countedCheck : check;
  numbers[from + at.limit] = isRefund ? 0 : limit;
  numbers[from + at.size] = isRefund ? 0 : Math.min(burst, limit);
  numbers[from + at.cost] = Math.abs(cost);
  numbers[from + at.knownNewest] = known?.newest ?? 0;
  numbers[from + at.knownCurrent] = known?.current ?? 0;
  numbers[from + at.knownLimit] = known?.limit ?? 0;
}

function appendReport(numbers: number[], report: GcraReport): void {
  const { at } = MESSAGES.GCRA_MESSAGE;
  const from = numbers.length;
  numbers[from + at.durationMs] = report.durationMs;
  numbers[from + at.kind] = GCRA_KIND.report;
  numbers[from + at.limit] = report.limit;
  numbers[from + at.size] = report.newest;
  numbers[from + at.cost] = report.current;
  numbers[from + at.knownNewest] = 0;
  numbers[from + at.knownCurrent] = 0;
  numbers[from + at.knownLimit] = 0;
}

function isReport(message: GcraMessage | GcraReport): message is GcraReport {
  return 'newest' in message;
}

export interface GcraCallAnswer extends Omit<CallAnswer, 'counters'> {
  counters: GcraAnswer[];
}

/** @param messages of the call */
export function decodeGcra(
  messages: readonly (GcraMessage | GcraReport)[],
  reply: unknown,
): GcraCallAnswer {
  const lines = linesOf(reply, gcra.name);
  if (lines.length === 0) throw new InvalidReply(gcra.name, reply);
  const header = decodeHeader(gcra.name, lines[0]);
  const count = header.status === CALL_STATUS.done ? messages.length : 0;
  if (lines.length !== count + 1) throw new InvalidReply(gcra.name, reply);
  const counters = messages
    .slice(0, count)
    .map((message, i) => decodeAnswer(message, lines[i + 1]));
  return { ...header, counters };
}

function decodeAnswer(message: GcraMessage | GcraReport, line: string): GcraAnswer {
  const { GCRA_ANSWER, GCRA_REFUSAL } = ANSWERS;
  const { at } = GCRA_ANSWER;
  const fields = new Line(gcra.name, line);
  const status = fields.integer(at.status, MESSAGE_STATUS.done, MESSAGE_STATUS.full);
  const answer = { ...NOTHING_DONE, status };
  if (status === MESSAGE_STATUS.done) {
    answer.isAllowed = fields.boolean(at.isAllowed);
    answer.remaining = fields.integer(at.remaining, 0);
    answer.reset = fields.integer(at.reset, 0, AMOUNT_MAX);
    answer.window = fields.integer(at.window, 1);
    const refundMax = isReport(message) ? 0 : Math.max(0, -message.cost);
    answer.refunded = fields.integer(at.refunded, 0, refundMax);
    answer.isMissing = fields.boolean(at.isMissing);
    answer.state = {
      newest: fields.integer(at.newest, 0),
      current: fields.integer(at.current, 0),
      limit: fields.integer(at.limit, 0),
    };
    fields.requireCount(GCRA_ANSWER.count);
  } else if (status === MESSAGE_STATUS.recovering) {
    answer.reset = fields.integer(GCRA_REFUSAL.at.reset, 0, AMOUNT_MAX);
    fields.requireCount(GCRA_REFUSAL.count);
  } else if (status === MESSAGE_STATUS.full) {
    fields.requireCount(1);
  } else {
    throw new InvalidReply(gcra.name, line);
  }
  return answer;
}

const NOTHING_DONE: GcraAnswer = {
  status: MESSAGE_STATUS.done,
  isAllowed: false,
  remaining: 0,
  reset: 0,
  window: 0,
  refunded: 0,
  isMissing: false,
  state: { newest: 0, current: 0, limit: 0 },
};
