/** The script calls of a member, from their arguments to their decoded replies. */

import { REDIS_CALL_DEADLINE_MS } from '../../core/constants.ts';
import type { Identity } from '../../core/hash.ts';
import { RedisError } from '../../redis/errors.ts';
import type { RedisLink } from '../../redis/link.ts';
import type { Script } from '../../redis/script.ts';
import {
  decodeExchange,
  encodeExchange,
  exchange,
  exchangeAtMaxmemory,
} from './scripts/exchange.ts';
import {
  decodeGcra,
  encodeGcra,
  type GcraCallAnswer,
  gcra,
  gcraAtMaxmemory,
} from './scripts/gcra.ts';
import {
  type BeginHold,
  beginHold,
  beginHoldAtMaxmemory,
  decodeBeginHold,
  decodeEndHold,
  decodeEndHolds,
  type EndHold,
  type EndHolds,
  encodeBeginHold,
  encodeEndHold,
  endHold,
  type HoldAnswer,
  type HoldsAnswer,
  type ReportHold,
} from './scripts/holds.ts';
import { decodeInspect, encodeInspect, type InspectAnswer, inspect } from './scripts/inspect.ts';
import {
  decodeForgetMembers,
  decodeLeave,
  decodeListMembers,
  decodePresentMembers,
  encodeForgetMembers,
  encodeLeave,
  encodeListMembers,
  encodePresentMembers,
  forgetMembers,
  leave,
  listMembers,
  type MemberList,
  presentMembers,
} from './scripts/members.ts';
import type {
  CallAnswer,
  CallHeader,
  CounterMessage,
  GcraMessage,
  GcraReport,
} from './scripts/protocol.ts';
import { OPEN_GRACE_MS } from './scripts/protocol-constants.ts';
import type { ScriptCall, ScriptContext } from './scripts/reply.ts';
import {
  decodeRequest,
  encodeRequest,
  type RequestCall,
  type RequestResult,
  repeatRequest,
} from './scripts/requests.ts';
import { decodeReset, encodeReset, type ResetSelector, reset } from './scripts/reset.ts';

/** Runs scripts on the server of their first key. */
export type ScriptRunner = Pick<RedisLink, 'call'>;

/** Every call rejects when Redis answers with an error, or with what is not valid. */
export class MemberScripts {
  readonly context: ScriptContext;
  readonly #runner: ScriptRunner;
  readonly #openGraceMs: number;
  /** A call fails after this time. */
  readonly timeoutMs: number;

  /**
   * @param checkTimeoutMs how long a check waits for its call
   * @param openGraceMs how long an empty Redis waits for members that know others
   */
  constructor(
    runner: ScriptRunner,
    context: ScriptContext,
    checkTimeoutMs: number,
    openGraceMs: number = OPEN_GRACE_MS[context.isAvailable ? 'available' : 'exact'],
  ) {
    this.timeoutMs = Math.max(REDIS_CALL_DEADLINE_MS, checkTimeoutMs);
    this.#runner = runner;
    this.context = context;
    this.#openGraceMs = openGraceMs;
  }

  async exchange(
    bucket: number,
    header: CallHeader,
    messages: readonly CounterMessage[],
  ): Promise<CallAnswer> {
    const call = encodeExchange(this.context, bucket, header, messages);
    return decodeExchange(messages, await this.#runOrServe(exchange, exchangeAtMaxmemory, call));
  }

  async gcra(
    bucket: number,
    header: CallHeader,
    messages: readonly (GcraMessage | GcraReport)[],
  ): Promise<GcraCallAnswer> {
    const call = encodeGcra(this.context, bucket, header, messages);
    return decodeGcra(messages, await this.#runOrServe(gcra, gcraAtMaxmemory, call));
  }

  /** @param capacity how many holds may be live in the bucket */
  async beginHold(
    header: CallHeader,
    hold: BeginHold | ReportHold,
    capacity: number,
  ): Promise<HoldAnswer> {
    const call = encodeBeginHold(this.context, header, hold, capacity);
    return decodeBeginHold(await this.#runOrServe(beginHold, beginHoldAtMaxmemory, call));
  }

  async endHold(header: CallHeader, hold: EndHold, capacity: number): Promise<HoldAnswer> {
    const call = encodeEndHold(this.context, header, hold, capacity);
    return decodeEndHold(await this.#run(endHold, call));
  }

  async endHolds(header: CallHeader, holds: EndHolds, capacity: number): Promise<HoldsAnswer> {
    const call = encodeEndHold(this.context, header, holds, capacity);
    return decodeEndHolds(await this.#run(endHold, call));
  }

  async request(call: RequestCall): Promise<RequestResult> {
    return decodeRequest(await this.#run(repeatRequest, encodeRequest(this.context.keys, call)));
  }

  async inspect(header: CallHeader, identity: Identity): Promise<InspectAnswer> {
    return decodeInspect(await this.#run(inspect, encodeInspect(this.context, header, identity)));
  }

  /** @returns undefined: Redis recovers, and nothing was changed */
  async reset(
    header: CallHeader,
    identity: Identity,
    selector: ResetSelector,
  ): Promise<number | undefined> {
    const call = encodeReset(this.context, header, identity, selector);
    return decodeReset(await this.#run(reset, call));
  }

  async presentMembers(
    bucket: number,
    header: CallHeader,
    members: readonly string[],
  ): Promise<CallAnswer> {
    const call = encodePresentMembers(this.context, bucket, header, members, this.#openGraceMs);
    const answer = decodePresentMembers(await this.#run(presentMembers, call));
    return { ...answer, counters: [] };
  }

  /**
   * @param usageEndMs when the usage of the member no longer counts, by the clock of Redis
   * @returns false: a recovery goes on, and may wait for the member
   */
  async leave(bucket: number, header: CallHeader, usageEndMs: number): Promise<boolean> {
    const call = encodeLeave(this.context, bucket, header, usageEndMs);
    return decodeLeave(await this.#run(leave, call));
  }

  /** @returns how many there were */
  async forgetMembers(bucket: number, name: string): Promise<number> {
    const call = encodeForgetMembers(this.context, bucket, name);
    return decodeForgetMembers(await this.#run(forgetMembers, call));
  }

  async listMembers(bucket: number): Promise<MemberList> {
    const call = encodeListMembers(this.context, bucket);
    return decodeListMembers(await this.#run(listMembers, call));
  }

  /** @param atMaxmemory serves the counters that exist, when Redis refuses the other script */
  async #runOrServe(script: Script, atMaxmemory: Script, call: ScriptCall): Promise<unknown> {
    try {
      return await this.#run(script, call);
    } catch (error) {
      if (!(error instanceof RedisError) || error.kind !== 'outOfMemory') throw error;
      return this.#run(atMaxmemory, call);
    }
  }

  #run(script: Script, { keys, args }: ScriptCall): Promise<unknown> {
    return this.#runner.call(script, keys, args, this.timeoutMs);
  }
}
