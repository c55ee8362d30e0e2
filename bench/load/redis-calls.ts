/**
 * Measures the cost of a weir for Redis: the CPU time of a script call, by what the call does, and
 * the memory of a counter. Redis itself reports its CPU time, and the part of it in scripts. Calls
 * go over 16 connections, with one call under way on each; a plain script that counts in a fixed
 * window is the baseline. All calls are encoded before a run, and decoded after it: each must have
 * its effect.
 */

import {
  decodeExchange,
  encodeExchange,
  exchange,
} from '../../src/engine/redis/scripts/exchange.ts';
import { KeySpace } from '../../src/engine/redis/scripts/keys.ts';
import {
  decodePresentMembers,
  encodePresentMembers,
  presentMembers,
} from '../../src/engine/redis/scripts/members.ts';
import {
  CALL_STATUS,
  type CallHeader,
  type CounterAnswer,
  type CounterMessage,
  NO_WINDOW,
  SERVED,
  type TokenCheck,
} from '../../src/engine/redis/scripts/protocol.ts';
import { MESSAGES_PER_CALL } from '../../src/engine/redis/scripts/protocol-constants.ts';
import type { ScriptCall } from '../../src/engine/redis/scripts/reply.ts';
import { type RedisServer, startRedis } from '../peers/redis-server.ts';
import { encodeCommand, parseReply, RespConnections } from '../support/resp.ts';
import { median, type Range, rangeOf } from '../support/rounds.ts';

const ROUNDS = 7;
const CONNECTIONS = 16;
const MESSAGES = 4_096;
const RECALLS = 512;
/** Members that hold the tokens of a recall. */
const HOLDERS = [1, 4];
/** Machines that have used a counter, and counters for each figure of memory. */
const MACHINES = [1, 2, 5];
const COUNTERS = 20_000;
const DURATION_MS = 3_600_000;
const LIMIT = 1_000;
const RATE = 10;

const CONTEXT = { keys: new KeySpace('weir', false), isAvailable: false };

export interface CallCost {
  what: string;
  /** In a call. */
  messages: number;
  /** By call, us: all of Redis, and the script. */
  cpuUs: number;
  scriptUs: number;
  /** CPU time by message, relative to a call of the plain script in the same round. */
  ratio: Range;
}

export interface CounterSize {
  machines: number;
  /** What MEMORY USAGE says about the key of one window. */
  keyBytes: number;
  /** The same of the key that lists the durations of the identifier. */
  indexBytes: number;
  /** By how much the memory of Redis grows with a counter: both keys, and their expiry. */
  totalBytes: number;
}

/** Of one run. */
interface Cost {
  calls: number;
  cpuUs: number;
  scriptUs: number;
}

interface Subject {
  what: string;
  messages: number;
  run: () => Promise<Cost>;
}

export async function measureCalls(progress: (what: string) => void): Promise<CallCost[]> {
  const redis = await startRedis();
  let calls: MemberCalls | undefined;
  try {
    calls = await MemberCalls.open(redis);
    const subjects = subjectsOf(calls, redis);
    const rounds: Cost[][] = subjects.map(() => []);
    // The first round warms up.
    for (let round = 0; round <= ROUNDS; round++) {
      for (const [i, { what, messages, run }] of subjects.entries()) {
        progress(`calls: round ${round} of ${ROUNDS}, ${what}, ${messages} in a call`);
        const cost = await run();
        if (round > 0) rounds[i].push(cost);
      }
    }
    const cpuOf = ({ cpuUs, calls }: Cost) => cpuUs / calls;
    const plain = rounds[0].map(cpuOf);
    return subjects.map(({ what, messages }, i) => {
      const cpus = rounds[i].map(cpuOf);
      const perMessage = cpus.map((cpuUs) => cpuUs / Math.max(1, messages));
      return {
        ...{ what, messages, cpuUs: median(cpus) },
        scriptUs: median(rounds[i].map(({ scriptUs, calls }) => scriptUs / calls)),
        ratio: rangeOf(perMessage.map((cpuUs, round) => cpuUs / plain[round])),
      };
    });
  } finally {
    calls?.close();
    await redis.stop();
  }
}

/** The first is the baseline. */
function subjectsOf(calls: MemberCalls, { windowScript }: RedisServer): Subject[] {
  const subjects: Subject[] = [
    { what: 'the plain script', messages: 1, run: () => calls.plain(windowScript) },
    { what: 'heartbeat', messages: 0, run: () => calls.run(0, new Array(MESSAGES).fill([])) },
  ];
  for (const messages of [1, MESSAGES_PER_CALL]) {
    subjects.push(
      { what: 'first check of a counter', messages, run: () => firstChecks(calls, messages) },
      { what: 'later check', messages, run: laterMessages(calls, messages, { spent: 3 }) },
      { what: 'prefetch', messages, run: laterMessages(calls, messages, { spent: 3, kept: 2 }) },
      { what: 'denied check', messages, run: laterMessages(calls, messages, { spent: 0 }) },
    );
  }
  for (const holders of HOLDERS) {
    subjects.push({
      what: `check that recalls from ${holders}`,
      messages: 1,
      run: () => recalls(calls, holders),
    });
  }
  return subjects;
}

function firstChecks(calls: MemberCalls, perCall: number): Promise<Cost> {
  const messages = Array.from({ length: MESSAGES }, () => calls.newMessage(LIMIT));
  return calls.run(0, chunksOf(messages, perCall), SERVED.allowed);
}

/**
 * Messages about counters that exist.
 * @param use tokens that were used since the last message: none, all checks are denied; what is
 *   kept of the lease: it is a prefetch
 */
function laterMessages(
  calls: MemberCalls,
  perCall: number,
  use: { spent: number; kept?: number },
): () => Promise<Cost> {
  const { spent, kept = 0 } = use;
  const isDenied = spent === 0;
  const limit = isDenied ? 1 : LIMIT;
  let messages: CounterMessage[] = [];
  return async () => {
    if (messages.length === 0) {
      messages = Array.from({ length: MESSAGES }, () => calls.newMessage(limit));
      await calls.run(0, chunksOf(messages, MESSAGES_PER_CALL), SERVED.allowed);
    }
    messages = messages.map((last) => ({
      ...last,
      ...{ window: calls.window, spent: isDenied ? 1 : last.spent + spent, kept },
      ...{ rate: RATE, lastLimit: limit, isStored: true, sequence: last.sequence + 1 },
      checks: kept > 0 ? [] : [costs(1, limit)],
    }));
    return calls.run(0, chunksOf(messages, perCall), isDenied ? SERVED.denied : SERVED.allowed);
  };
}

/** Checks of counters whose tokens are all in leases of other members. */
async function recalls(calls: MemberCalls, holders: number): Promise<Cost> {
  const limit = 100;
  const messages = Array.from({ length: RECALLS }, () => calls.newMessage(limit));
  for (let member = 1; member <= holders; member++) {
    const held = messages.map((message) => {
      return { ...message, window: calls.window, kept: limit / holders, checks: [] };
    });
    await calls.run(member, chunksOf(held, MESSAGES_PER_CALL));
  }
  return calls.run(0, chunksOf(messages, 1), SERVED.unproven);
}

/** Each in a Redis of its own. */
export async function measureSizes(progress: (what: string) => void): Promise<CounterSize[]> {
  const sizes: CounterSize[] = [];
  for (const machines of MACHINES) {
    progress(`memory of a counter, machines: ${machines}`);
    const redis = await startRedis();
    let calls: MemberCalls | undefined;
    try {
      calls = await MemberCalls.open(redis);
      sizes.push(await measureSize(calls, machines));
    } finally {
      calls?.close();
      await redis.stop();
    }
  }
  return sizes;
}

/** Counters that `machines` machines have used, each with one shard worker. */
async function measureSize(calls: MemberCalls, machines: number): Promise<CounterSize> {
  const messages = Array.from({ length: COUNTERS }, () => calls.newMessage(LIMIT));
  const before = await calls.usedBytes();
  for (let member = 0; member < machines; member++) {
    await calls.run(member, chunksOf(messages, MESSAGES_PER_CALL), SERVED.allowed);
  }
  const after = await calls.usedBytes();
  const [{ identity }] = messages;
  const key = `${CONTEXT.keys.counter(identity, DURATION_MS)}:${calls.window}`;
  return {
    machines,
    keyBytes: await calls.bytesOf(key),
    indexBytes: await calls.bytesOf(CONTEXT.keys.index(identity)),
    totalBytes: (after - before) / COUNTERS,
  };
}

function costs(cost: number, limit: number): TokenCheck {
  return { cost, limit, isSliding: false, countsDenied: false };
}

function chunksOf<T>(items: readonly T[], length: number): T[][] {
  return Array.from({ length: Math.ceil(items.length / length) }, (_, i) => {
    return items.slice(i * length, (i + 1) * length);
  });
}

/** Members of one bucket that have joined, and their calls. */
class MemberCalls {
  readonly #redis: RedisServer;
  readonly #connections: RespConnections;
  /** Gets what is published: holders without a subscription are written off. */
  readonly #subscriber: RespConnections;
  readonly #headers: CallHeader[] = [];
  #identities = 0;
  /** The one of the last answer. */
  window = NO_WINDOW;

  private constructor(
    redis: RedisServer,
    connections: RespConnections,
    subscriber: RespConnections,
  ) {
    this.#redis = redis;
    this.#connections = connections;
    this.#subscriber = subscriber;
  }

  static async open(redis: RedisServer): Promise<MemberCalls> {
    const connections = await RespConnections.open(redis.port, CONNECTIONS);
    const subscriber = await RespConnections.open(redis.port, 1);
    const calls = new MemberCalls(redis, connections, subscriber);
    await connections.command(['SCRIPT', 'LOAD', exchange.text], 2);
    await connections.command(['SCRIPT', 'LOAD', presentMembers.text], 2);
    for (let member = 0; member <= Math.max(...HOLDERS); member++) await calls.#join(member);
    // A first message tells the window.
    await calls.run(0, [[calls.newMessage(LIMIT)]]);
    return calls;
  }

  async #join(at: number): Promise<void> {
    const member = `${String(at).padStart(16, '0')}.0`;
    const header: CallHeader = { member, reportedEpoch: '', membersVersion: 0, clockUs: 0 };
    const { keys } = CONTEXT;
    await this.#subscriber.command(['SUBSCRIBE', keys.channel(0, member)], 6);
    const call = encodePresentMembers(CONTEXT, 0, header, [], 0);
    const words = ['EVALSHA', presentMembers.sha1, ...wordsOf(call)];
    const { epoch, membersVersion } = decodePresentMembers(
      await this.#connections.command(words, 3),
    );
    // All members must know the new one.
    for (const known of this.#headers) known.membersVersion = membersVersion;
    for (const member of this.#headers.keys()) await this.run(member, [[]]);
    this.#headers.push(header);
    await this.run(at, [[]]);
    header.membersVersion = membersVersion;
    header.reportedEpoch = epoch;
  }

  /** The first message of this member about a new counter, with one check. */
  newMessage(limit: number): CounterMessage {
    return {
      identity: { h0: 1, h1: 2, h2: 3, h3: this.#identities++ },
      ...{ durationMs: DURATION_MS, window: NO_WINDOW, sequence: 1, firstSequence: 1 },
      ...{ spent: 0, previousSpent: 0, hasPrevious: false, isStored: false },
      ...{ others: 0, previousKnown: 0, report: 0, inherits: 0 },
      ...{ kept: 0, rate: 0, lastLimit: 0, wantsLease: true, isSliding: false, recalls: false },
      ...{ refund: 0, refundWindow: NO_WINDOW, checks: [costs(1, limit)] },
    };
  }

  /** @param served what must become of each check */
  async run(
    member: number,
    calls: readonly CounterMessage[][],
    served?: CounterAnswer['served'][number],
  ): Promise<Cost> {
    const header = this.#headers[member];
    const commands = calls.map((messages) => {
      const call = encodeExchange(CONTEXT, 0, header, messages);
      return encodeCommand(['EVALSHA', exchange.sha1, ...wordsOf(call)]);
    });
    const { cost, replies } = await this.#measure(commands, 1 + 2 * (1 + calls[0].length));
    for (const [i, reply] of replies.entries()) {
      const { status, counters } = decodeExchange(calls[i], parseReply(reply));
      if (status !== CALL_STATUS.done) throw new Error(`a call has the status ${status}`);
      for (const { status, window, served: verdicts } of counters) {
        const isExpected = served === undefined || verdicts.every((verdict) => verdict === served);
        if (status !== CALL_STATUS.done || !isExpected) {
          throw new Error(`a message has the status ${status} and the decisions ${verdicts}`);
        }
        this.window = window;
      }
    }
    return cost;
  }

  /** @param sha1 of the script that counts in a fixed window; each call is the first of its key */
  async plain(sha1: string): Promise<Cost> {
    const commands = Array.from({ length: MESSAGES }, () => {
      return encodeCommand(['EVALSHA', sha1, '1', `window:${this.#identities++}`, '1', '60000']);
    });
    return (await this.#measure(commands, 3)).cost;
  }

  async usedBytes(): Promise<number> {
    return (await this.#redis.usage()).usedBytes;
  }

  async bytesOf(key: string): Promise<number> {
    return Number(await this.#connections.command(['MEMORY', 'USAGE', key], 1));
  }

  async #measure(commands: readonly Buffer[], newLines: number) {
    const before = await this.#redis.usage();
    const replies = await this.#connections.run(commands, newLines);
    const after = await this.#redis.usage();
    const calls = after.calls - before.calls;
    if (calls !== commands.length) throw new Error(`${calls} calls, not ${commands.length}`);
    const cpuUs = after.cpuUs - before.cpuUs;
    return { cost: { calls, cpuUs, scriptUs: after.scriptUs - before.scriptUs }, replies };
  }

  close(): void {
    this.#connections.close();
    this.#subscriber.close();
  }
}

function wordsOf({ keys, args }: ScriptCall): (string | Buffer)[] {
  return [String(keys.length), ...keys, ...args];
}
