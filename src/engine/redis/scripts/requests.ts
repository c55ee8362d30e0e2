/**
 * The script that stores answers to requests that may be repeated, its arguments and its reply. An
 * invalid reply throws.
 */

import { composeLua, defineScript } from '../../../redis/script.ts';
import { formatHoldId, HOLD_KIND, type HoldId, parseHoldId } from '../../hold-id.ts';
import type { RepeatableRequest, RequestAnswer } from '../../request-engine.ts';
import { hexOf, type KeySpace } from './keys.ts';
import { ANSWERS, luaConstants, REQUEST_OPERATION, REQUEST_STATUS } from './records.ts';
import repeatRequestLua from './repeat-request.lua';
import { InvalidReply, Line, linesOf, type ScriptCall } from './reply.ts';

export const repeatRequest = defineScript(
  'repeatRequest',
  composeLua(repeatRequestLua, {}, luaConstants()),
);

/** What the worker does about a request. `claim` names the acceptor's attempt to decide it. */
export type RequestCall = { request: RepeatableRequest; claim: string } & (
  | { operation: 'claim' | 'drop' }
  | { operation: 'store'; answer: RequestAnswer }
);

export interface RequestResult {
  /** One of REQUEST_STATUS. */
  status: number;
  /** Of `answered`. */
  answer: RequestAnswer | undefined;
}

export function encodeRequest(keys: KeySpace, call: RequestCall): ScriptCall {
  const { request, operation, claim } = call;
  const answer = operation === 'store' ? encodeAnswer(call.answer) : '';
  const parameters = hexOf(request.parameters);
  return {
    keys: [keys.request(request.key)],
    args: [String(REQUEST_OPERATION[operation]), parameters, claim, answer],
  };
}

export function decodeRequest(reply: unknown): RequestResult {
  const { name } = repeatRequest;
  const lines = linesOf(reply, name);
  if (lines.length !== 1) throw new InvalidReply(name, reply);
  const { at, count } = ANSWERS.REQUEST_ANSWER;
  const fields = new Line(name, lines[0]);
  const status = fields.integer(at.status, REQUEST_STATUS.claimed, REQUEST_STATUS.conflict);
  const text = fields.text(at.answer, /^\S+$/);
  fields.requireCount(count);
  const isAnswered = status === REQUEST_STATUS.answered;
  return { status, answer: isAnswered ? decodeAnswer(text) : undefined };
}

const NO_HOLD = '-';

function encodeAnswer({ limit, remaining, reset, id, expiresAt, inUse }: RequestAnswer): string {
  const hold = id === undefined ? NO_HOLD : formatHoldId(id);
  return [limit, remaining, reset, expiresAt, inUse, hold].join(',');
}

/** Only answers to allowed requests are stored. */
function decodeAnswer(text: string): RequestAnswer {
  const parts = text.split(',');
  const [limit, remaining, reset, expiresAt, inUse] = parts.map(Number);
  const numbers = { limit, remaining, reset, expiresAt, inUse };
  const id = parseHold(parts[5] ?? '');
  const isValid = Object.values(numbers).every((n) => Number.isSafeInteger(n) && n >= 0);
  if (parts.length !== 6 || !isValid || (id === undefined && parts[5] !== NO_HOLD)) {
    throw new InvalidReply(repeatRequest.name, text);
  }
  return { allowed: true, ...numbers, id };
}

function parseHold(text: string): HoldId | undefined {
  return parseHoldId(HOLD_KIND.reservation, text) ?? parseHoldId(HOLD_KIND.lease, text);
}
