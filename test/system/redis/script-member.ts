/** A member that calls the scripts of the redis engine by itself, as a test tells it. */

import { createClient } from '@redis/client';
import { afterAll, beforeAll } from 'vitest';
import type { Identity } from '../../../src/core/hash.ts';
import {
  decodeExchange,
  encodeExchange,
  exchange,
} from '../../../src/engine/redis/scripts/exchange.ts';
import { KeySpace } from '../../../src/engine/redis/scripts/keys.ts';
import { decodeMemberMessage } from '../../../src/engine/redis/scripts/member-messages.ts';
import {
  decodeLeave,
  decodePresentMembers,
  encodeLeave,
  encodePresentMembers,
  leave,
  presentMembers,
} from '../../../src/engine/redis/scripts/members.ts';
import {
  CALL_STATUS,
  type CallAnswer,
  type CallHeader,
  type CounterAnswer,
  type CounterMessage,
  type MemberMessage,
  NO_WINDOW,
  type TokenCheck,
} from '../../../src/engine/redis/scripts/protocol.ts';
import type { ScriptCall, ScriptContext } from '../../../src/engine/redis/scripts/reply.ts';
import type { Script } from '../../../src/redis/script.ts';
import { isRedisMissing, type RedisServer } from '../../support/programs/redis.ts';
import { waitUntil } from '../../support/server.ts';
import { useRedis } from './use-redis.ts';

export const IDENTITY: Identity = { h0: 1, h1: -2, h2: 3, h3: 4 };

let identities = 10;
/** Each case has a counter of its own. */
export const newIdentity = (): Identity => ({ ...IDENTITY, h0: identities++ });

/** A check of a fixed window. */
export function costs(cost: number, limit: number, options: Partial<TokenCheck> = {}): TokenCheck {
  return { cost, limit, isSliding: false, countsDenied: false, ...options };
}

export interface ScriptMember {
  name: string;
  header: CallHeader;
  context: ScriptContext;
  /** What was published to it. */
  received: MemberMessage[];
  command: (...words: string[]) => Promise<unknown>;
  run: (script: Script, call: ScriptCall) => Promise<unknown>;
  call: (messages: readonly CounterMessage[]) => Promise<CallAnswer>;
  /** Sends one message with a new sequence number. */
  send: (message: Partial<CounterMessage>) => Promise<CounterAnswer>;
  message: (message: Partial<CounterMessage>) => CounterMessage;
  /** Presents members, and takes over the epoch. */
  present: (members?: readonly string[], graceMs?: number) => Promise<number>;
  /** @returns false: it cannot leave now */
  leave: (usageEndMs?: number) => Promise<boolean>;
  /** Says that all of its counters are reported in the epoch of the last answer. */
  finishReport: () => void;
  close: () => void;
}

export const PREFIX = 'weir';
/** Later than the end of any window of a test. */
export const FAR_MS = 9_000_000_000_000;

export async function connectMember(
  port: number,
  name: string,
  { isAvailable = false } = {},
): Promise<ScriptMember> {
  const context: ScriptContext = { keys: new KeySpace(PREFIX, false), isAvailable };
  const settings = {
    RESP: 2,
    socket: { host: '127.0.0.1', port, reconnectStrategy: () => 20 },
  } as const;
  const client = createClient(settings);
  const subscriber = createClient(settings);
  const received: MemberMessage[] = [];
  client.on('error', () => {});
  subscriber.on('error', () => {});
  await client.connect();
  await subscriber.connect();
  await subscriber.subscribe(context.keys.channel(0, name), (text) => {
    received.push(decodeMemberMessage(text)!);
  });
  const header: CallHeader = { member: name, reportedEpoch: '', membersVersion: 0, clockUs: 0 };
  let sequence = 0;
  let epoch = '';
  const run = async (script: Script, { keys, args }: ScriptCall): Promise<unknown> => {
    const words = [String(keys.length), ...keys, ...args];
    try {
      return await client.sendCommand(['EVALSHA', script.sha1, ...words]);
    } catch (error) {
      if (!(error as Error).message.startsWith('NOSCRIPT')) throw error;
    }
    return client.sendCommand(['EVAL', script.text, ...words]);
  };
  const note = (answer: Omit<CallAnswer, 'counters'>) => {
    header.clockUs = answer.clockUs;
    header.membersVersion = answer.membersVersion;
    epoch = answer.epoch;
  };
  const call = async (messages: readonly CounterMessage[]) => {
    const reply = await run(exchange, encodeExchange(context, 0, header, messages));
    const answer = decodeExchange(messages, reply);
    note(answer);
    return answer;
  };
  const message = (of: Partial<CounterMessage>): CounterMessage => ({
    identity: IDENTITY,
    durationMs: 60_000,
    window: NO_WINDOW,
    spent: 0,
    previousSpent: 0,
    hasPrevious: false,
    sequence: ++sequence,
    kept: 0,
    rate: 0,
    lastLimit: 0,
    wantsLease: false,
    isSliding: false,
    firstSequence: 1,
    isStored: false,
    others: 0,
    previousKnown: 0,
    report: 0,
    inherits: 0,
    recalls: false,
    refund: 0,
    refundWindow: NO_WINDOW,
    checks: [],
    ...of,
  });
  return {
    name,
    header,
    context,
    received,
    command: (...words) => client.sendCommand(words),
    run,
    call,
    message,
    async send(of) {
      const answer = await call([message(of)]);
      if (answer.status !== CALL_STATUS.done) throw new Error(`call status ${answer.status}`);
      return answer.counters[0];
    },
    async present(members = [], graceMs = 0) {
      const encoded = encodePresentMembers(context, 0, header, members, graceMs);
      const answer = decodePresentMembers(await run(presentMembers, encoded));
      note(answer);
      return answer.status;
    },
    async leave(usageEndMs = FAR_MS) {
      return decodeLeave(await run(leave, encodeLeave(context, 0, header, usageEndMs)));
    },
    finishReport() {
      header.reportedEpoch = epoch;
    },
    close() {
      client.destroy();
      subscriber.destroy();
    },
  };
}

/** Connects members that have joined. The first opens the empty Redis. */
export async function joinMembers(port: number, count: number): Promise<ScriptMember[]> {
  const members: ScriptMember[] = [];
  for (let i = 0; i < count; i++) {
    members.push(await connectMember(port, `${String(i).padStart(16, '0')}.0`));
  }
  await members[0].present();
  await waitUntil('all members have joined', async () => {
    let hasJoined = true;
    for (const member of members) {
      if ((await member.call([])).status !== CALL_STATUS.done) hasJoined = false;
      member.finishReport();
    }
    return hasJoined;
  });
  return members;
}

/**
 * Starts a Redis, and members that have joined it, before the tests where it is called.
 * @returns objects that are complete when the tests run
 */
export function useMembers(count: number): { redis: RedisServer; members: ScriptMember[] } {
  const redis = useRedis();
  const members = Array.from({ length: count }, () => ({}) as ScriptMember);
  beforeAll(async () => {
    if (isRedisMissing) return;
    for (const [i, member] of (await joinMembers(redis.port, count)).entries()) {
      Object.assign(members[i], member);
    }
  });
  afterAll(() => {
    for (const member of members) member.close?.();
  });
  return { redis, members };
}
