/**
 * The arguments and the parts of replies that all scripts of members share. An invalid reply
 * throws, and no check is allowed by it.
 */

import { RedisError } from '../../../redis/errors.ts';
import type { KeySpace } from './keys.ts';
import { CALL_STATUS, type CallAnswer, type CallHeader } from './protocol.ts';
import { ANSWERS, CALL_FLAG, MESSAGES } from './records.ts';

/** How a machine uses Redis: the same in all its calls. */
export interface ScriptContext {
  keys: KeySpace;
  /** Whether a recovery does not wait for members that are gone. */
  isAvailable: boolean;
  /** The process before this one, whose records are inherited. */
  predecessor?: string | undefined;
}

/** The keys and arguments of a call. All keys are in the slot of the first. */
export interface ScriptCall {
  keys: string[];
  args: (string | Buffer)[];
}

/** @param numbers of the messages of the call */
export function headerArguments(
  header: CallHeader,
  { keys, isAvailable }: ScriptContext,
  numbers: readonly number[] = [],
): (string | Buffer)[] {
  const { member, reportedEpoch, membersVersion, clockUs } = header;
  const callFlags =
    (keys.isCluster ? CALL_FLAG.isCluster : 0) + (isAvailable ? CALL_FLAG.isAvailable : 0);
  const { at } = MESSAGES.HEADER;
  const all: number[] = [];
  all[at.acknowledged] = membersVersion;
  all[at.seenUs] = clockUs;
  all[at.callFlags] = callFlags;
  for (const number of numbers) all.push(number);
  return [member, reportedEpoch, packed(all)];
}

/** A number as an argument. */
export function text(amount: number): string {
  if (!Number.isSafeInteger(amount)) throw new Error(`${amount} is not an exact integer`);
  return String(amount);
}

/**
 * Numbers as one argument of doubles, which a script unpacks. Redis and Lua need several times as
 * long for a text for each number.
 */
function packed(amounts: readonly number[]): Buffer {
  const bytes = Buffer.allocUnsafe(8 * amounts.length);
  for (const [i, amount] of amounts.entries()) {
    if (!Number.isSafeInteger(amount)) throw new Error(`${amount} is not an exact integer`);
    // The sum has no negative zero.
    bytes.writeDoubleLE(amount + 0, 8 * i);
  }
  return bytes;
}

/** The strings of a reply. */
export function linesOf(reply: unknown, script: string): string[] {
  if (!Array.isArray(reply) || reply.some((line) => typeof line !== 'string')) {
    throw new InvalidReply(script, reply);
  }
  return reply;
}

/** Redis or something that pretends to be it has answered what no script answers. */
export class InvalidReply extends RedisError {
  constructor(script: string, reply: unknown) {
    super(
      'unexpectedReply',
      `Redis has sent an invalid reply to the script ${script}: ${excerpt(reply)}`,
    );
  }
}

/** Takes the fields of a line apart, which are separated by spaces. */
export class Line {
  readonly #script: string;
  readonly #line: string;
  readonly #fields: string[];

  constructor(script: string, line: string) {
    this.#script = script;
    this.#line = line;
    this.#fields = line.split(' ');
  }

  /** @param at the place of the field in its layout */
  text(at: number, pattern: RegExp): string {
    const field = this.#fields[at];
    if (field === undefined || !pattern.test(field)) throw this.#invalid();
    return field;
  }

  /** An exact integer. */
  integer(at: number, from: number, to = Number.MAX_SAFE_INTEGER): number {
    const number = Number(this.text(at, INTEGER));
    if (!(number >= from && number <= to)) throw this.#invalid();
    return number;
  }

  /** An exact integer of any sign. */
  signed(at: number): number {
    return this.integer(at, -Number.MAX_SAFE_INTEGER);
  }

  boolean(at: number): boolean {
    return this.integer(at, 0, 1) === 1;
  }

  hasMoreThan(count: number): boolean {
    return this.#fields.length > count;
  }

  /** There must be so many fields. */
  requireCount(count: number): void {
    if (this.#fields.length !== count) throw this.#invalid();
  }

  #invalid(): InvalidReply {
    return new InvalidReply(this.#script, this.#line);
  }
}

const INTEGER = /^(?:0|-?[1-9][0-9]{0,15})$/;
export const EPOCH = /^[0-9a-f]{40}\.(?:0|[1-9][0-9]{0,15})$/;

/** What an answer says before its counters. */
export function decodeHeader(script: string, line: string): Omit<CallAnswer, 'counters'> {
  const { at, count } = ANSWERS.ANSWER_HEADER;
  const fields = new Line(script, line);
  const header = {
    status: fields.integer(at.status, CALL_STATUS.done, CALL_STATUS.needsMembers),
    clockUs: fields.integer(at.clockUs, 1),
    epoch: fields.text(at.epoch, EPOCH),
    isRecovering: fields.boolean(at.isRecovering),
    membersVersion: fields.integer(at.membersVersion, 0),
    machineCount: fields.integer(at.machineCount, 0),
    openedUs: 0,
    aheadUs: 0,
  };
  if (fields.hasMoreThan(count)) {
    const end = ANSWERS.ANSWER_HEADER_END;
    header.openedUs = fields.integer(count + end.at.openedUs, 0);
    header.aheadUs = fields.integer(count + end.at.aheadUs, 0);
    fields.requireCount(count + end.count);
  }
  return header;
}

function excerpt(reply: unknown): string {
  return String(JSON.stringify(reply)).slice(0, 200);
}
