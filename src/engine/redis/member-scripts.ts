/** The script calls of a member, from their arguments to their decoded replies. */

import type { Script } from '../../redis/script.ts';
import type { CallAnswer, CallHeader, CounterMessage } from './protocol.ts';
import { exchange } from './scripts/exchange.ts';
import { decodeExchange, encodeExchange } from './scripts/exchange-codec.ts';
import {
  decodeListMembers,
  decodePresentMembers,
  encodeListMembers,
  encodePresentMembers,
  listMembers,
  type MemberList,
  OPEN_GRACE_MS,
  presentMembers,
} from './scripts/members.ts';
import type { ScriptCall, ScriptContext } from './scripts/reply.ts';

/** Runs scripts on the server that has a bucket. */
export interface ScriptRunner {
  run(script: Script, bucket: number, keys: string[], args: string[]): Promise<unknown>;
}

/** Every call rejects when Redis answers with an error, or with what is not valid. */
export class MemberScripts {
  readonly context: ScriptContext;
  readonly #runner: ScriptRunner;

  readonly #openGraceMs: number;

  /** @param openGraceMs how long an empty Redis waits for members that know others */
  constructor(runner: ScriptRunner, context: ScriptContext, openGraceMs = OPEN_GRACE_MS) {
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
    return decodeExchange(messages, await this.#run(exchange, bucket, call));
  }

  async presentMembers(
    bucket: number,
    header: CallHeader,
    members: readonly string[],
  ): Promise<CallAnswer> {
    const call = encodePresentMembers(this.context, bucket, header, members, this.#openGraceMs);
    const answer = decodePresentMembers(await this.#run(presentMembers, bucket, call));
    return { ...answer, counters: [] };
  }

  async listMembers(bucket: number): Promise<MemberList> {
    const call = encodeListMembers(this.context, bucket);
    return decodeListMembers(await this.#run(listMembers, bucket, call));
  }

  #run(script: Script, bucket: number, { keys, args }: ScriptCall): Promise<unknown> {
    return this.#runner.run(script, bucket, keys, args);
  }
}
