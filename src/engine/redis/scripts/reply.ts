/**
 * The arguments and the parts of replies that all scripts of members share. An invalid reply
 * throws, and no check is allowed by it.
 */

import { RedisError } from '../../../redis/errors.ts';
import type { KeySpace } from './keys.ts';
import { CALL_STATUS, type CallAnswer, type CallHeader } from './protocol.ts';

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
  const flags = (keys.isCluster ? 1 : 0) + (isAvailable ? 2 : 0);
  return [member, reportedEpoch, packed([membersVersion, clockUs, flags, ...numbers])];
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
  #at = 0;

  constructor(script: string, line: string) {
    this.#script = script;
    this.#line = line;
    this.#fields = line.split(' ');
  }

  text(pattern: RegExp): string {
    const field = this.#fields[this.#at++];
    if (field === undefined || !pattern.test(field)) throw this.#invalid();
    return field;
  }

  /** An exact integer. */
  integer(from: number, to = Number.MAX_SAFE_INTEGER): number {
    const number = Number(this.text(INTEGER));
    if (!(number >= from && number <= to)) throw this.#invalid();
    return number;
  }

  /** An exact integer of any sign. */
  signed(): number {
    return this.integer(-Number.MAX_SAFE_INTEGER);
  }

  boolean(): boolean {
    return this.integer(0, 1) === 1;
  }

  get hasMore(): boolean {
    return this.#at < this.#fields.length;
  }

  /** All fields must have been read. */
  end(): void {
    if (this.#at !== this.#fields.length) throw this.#invalid();
  }

  #invalid(): InvalidReply {
    return new InvalidReply(this.#script, this.#line);
  }
}

const INTEGER = /^(?:0|-?[1-9][0-9]{0,15})$/;
export const EPOCH = /^[0-9a-f]{40}\.(?:0|[1-9][0-9]{0,15})$/;

/** What an answer says before its counters. */
export function decodeHeader(script: string, line: string): Omit<CallAnswer, 'counters'> {
  const fields = new Line(script, line);
  const header = {
    status: fields.integer(CALL_STATUS.done, CALL_STATUS.needsMembers),
    clockUs: fields.integer(1),
    epoch: fields.text(EPOCH),
    isRecovering: fields.boolean(),
    membersVersion: fields.integer(0),
    machineCount: fields.integer(0),
    openedUs: 0,
    aheadUs: 0,
  };
  if (fields.hasMore) {
    header.openedUs = fields.integer(0);
    header.aheadUs = fields.integer(0);
  }
  fields.end();
  return header;
}

function excerpt(reply: unknown): string {
  return String(JSON.stringify(reply)).slice(0, 200);
}
