/**
 * A connection that is made again whenever it is lost, with growing delays. Without a connection a
 * command fails at once: nothing waits in a queue. Subscriptions are made again before the new
 * connection is used.
 */

import { REDIS_CALL_DEADLINE_MS } from '../core/constants.ts';
import { Backoff } from './backoff.ts';
import { type Attempt, waitFor } from './deadline.ts';
import { errorOfConnection, RedisError } from './errors.ts';
import type { Script } from './script.ts';
import { readServerFacts, type ServerFacts } from './server-facts.ts';
import { type MessageListener, Session, type SessionOptions } from './session.ts';
import type { RedisAddress } from './url.ts';

export interface ConnectionOptions extends Omit<SessionOptions, 'address'> {
  /** Where to connect: called before each attempt. @throws RedisError */
  locate: () => RedisAddress | Promise<RedisAddress>;
  /** Sentinels often need no password although the servers do. */
  authenticates: 'always' | 'ifRequired';
  /** Rejects a server that must not be used. Undefined: the server is a Sentinel. */
  validate: ((facts: ServerFacts) => void) | undefined;
  /** How many replicas must have each change. */
  waitForReplicas: number;
  onReady?: (facts: ServerFacts | undefined) => void;
  /** Called for each lost connection, and once for attempts that fail for the same reason. */
  onFailure?: (error: RedisError) => void;
}

export interface Subscription {
  isSharded: boolean;
  onMessage: MessageListener;
  /** Called after each subscription, also of a new connection. */
  onSubscribed: () => void;
  /** Called if the slot of a sharded channel is not on this server. */
  onMoved?: (error: RedisError | undefined) => void;
}

export interface ScriptCall {
  script: Script;
  keys: readonly string[];
  args: readonly (string | Buffer)[];
  /** Whether the slot is being moved to this server. */
  isAsking?: boolean;
}

export class ServerConnection {
  readonly #options: ConnectionOptions;
  readonly #backoff = new Backoff();
  readonly #subscriptions = new Map<string, Subscription>();
  /** Not usable yet. */
  #opening: Session | undefined;
  #session: Session | undefined;
  #facts: ServerFacts | undefined;
  #error = new RedisError('unreachable', 'Redis is not connected yet');
  #isClosed = false;
  #wake = () => {};
  #sendsPassword: boolean;

  constructor(options: ConnectionOptions) {
    this.#options = options;
    this.#sendsPassword = options.authenticates === 'always';
    void this.#run();
  }

  get isReady(): boolean {
    return this.#session !== undefined;
  }

  get address(): RedisAddress | undefined {
    return this.#session?.address;
  }

  get facts(): ServerFacts | undefined {
    return this.#session === undefined ? undefined : this.#facts;
  }

  /** Asks the server again. Without an answer, what it has said stays. */
  async refreshFacts(): Promise<void> {
    const session = this.#session;
    if (session === undefined) return;
    try {
      const facts = await readServerFacts(session);
      if (this.#session === session) this.#facts = facts;
    } catch (error) {
      if (!(error instanceof RedisError)) throw error;
    }
  }

  /** Why there is no connection, or why the last one was lost. */
  get error(): RedisError {
    return this.#error;
  }

  /** Resolves when there is a connection, or when the caller does not wait any more. */
  whenReady(attempt: Attempt): Promise<void> {
    return waitFor(attempt, () => this.isReady || this.#isClosed);
  }

  /** @throws RedisError; without a connection, at once */
  async send(words: readonly string[]): Promise<unknown> {
    const session = this.#requireSession();
    try {
      return await session.send(words);
    } catch (error) {
      this.#endIfUseless(session, error);
      throw error;
    }
  }

  /** Runs a script by its hash, and loads it if the server does not have it. @throws RedisError */
  async run(call: ScriptCall): Promise<unknown> {
    const session = this.#requireSession();
    try {
      return await this.#evaluate(session, call);
    } catch (error) {
      if (!(error instanceof RedisError) || error.kind !== 'noScript') {
        this.#endIfUseless(session, error);
        throw error;
      }
    }
    const loaded = session.send(['SCRIPT', 'LOAD', call.script.text]);
    const [, reply] = await Promise.all([loaded, this.#evaluate(session, call)]);
    return reply;
  }

  /** The channel stays subscribed on all later connections. */
  subscribe(channel: string, subscription: Subscription): void {
    this.#subscriptions.set(channel, subscription);
    if (this.#session !== undefined) void this.#subscribeNow(this.#session, [channel]);
  }

  unsubscribe(channel: string): void {
    if (this.#subscriptions.delete(channel)) void this.#session?.unsubscribe(channel);
  }

  /** Ends the connection, to make a new one. */
  reconnect(error: RedisError): void {
    this.#session?.end(error);
  }

  close(): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.#error = new RedisError('unreachable', 'the connection to Redis was closed');
    this.#session?.end(this.#error);
    this.#session = undefined;
    this.#opening?.end(this.#error);
    this.#wake();
  }

  async #run(): Promise<void> {
    let reported = '';
    while (!this.#isClosed) {
      const { error, wasReady } = await this.#connectOnce();
      if (this.#isClosed) return;
      this.#error = error;
      if (wasReady || error.message !== reported) this.#options.onFailure?.(error);
      reported = wasReady ? '' : error.message;
      if (this.#isClosed) return;
      if (error.kind === 'denied' && this.#options.authenticates === 'ifRequired') {
        this.#sendsPassword = !this.#sendsPassword;
      }
      await this.#sleep(this.#backoff.nextMs());
    }
  }

  /** Connects, and returns when the connection has ended. */
  async #connectOnce(): Promise<{ error: RedisError; wasReady: boolean }> {
    let session: Session | undefined;
    try {
      const { tls, database, credentials, locate } = this.#options;
      const address = await locate();
      if (this.#isClosed) return { error: this.#error, wasReady: false };
      session = new Session({
        address,
        tls,
        database,
        credentials: this.#sendsPassword ? credentials : undefined,
      });
      this.#opening = session;
      await session.connect();
      const subscribed = new Set<string>();
      const facts = await this.#prepare(session, subscribed);
      // It may have ended, or been closed, since its last answer.
      if (session.error !== undefined) throw session.error;
      this.#facts = facts;
      this.#session = session;
      void this.#subscribeMissing(session, subscribed);
      this.#backoff.reset();
      this.#options.onReady?.(facts);
    } catch (error) {
      const failure = session?.error ?? errorOfConnection('Redis', error);
      session?.end(failure);
      return { error: failure, wasReady: false };
    } finally {
      this.#opening = undefined;
    }
    const error = await session.ended;
    if (this.#session === session) this.#session = undefined;
    return { error, wasReady: true };
  }

  async #prepare(session: Session, subscribed: Set<string>): Promise<ServerFacts | undefined> {
    const { validate } = this.#options;
    session.onChannelMoved((channel) => {
      this.#subscriptions.get(channel)?.onMoved?.(undefined);
    });
    const work = async () => {
      const facts = validate === undefined ? undefined : await readServerFacts(session);
      if (facts !== undefined) validate?.(facts);
      await this.#subscribeMissing(session, subscribed);
      return facts;
    };
    // The keepalive ends a session that does not answer.
    const ended = session.ended.then((error) => {
      throw error;
    });
    return Promise.race([work(), ended]);
  }

  /** @param subscribed the channels that this session has subscribed; the others are added */
  async #subscribeMissing(session: Session, subscribed: Set<string>): Promise<void> {
    const missing = [...this.#subscriptions.keys()].filter((name) => !subscribed.has(name));
    for (const channel of missing) subscribed.add(channel);
    await this.#subscribeNow(session, missing);
  }

  async #subscribeNow(session: Session, channels: readonly string[]): Promise<void> {
    const isSharded = channels.some((channel) => this.#subscriptions.get(channel)?.isSharded);
    // A server rejects sharded channels of different slots in one command.
    const groups = isSharded ? channels.map((channel) => [channel]) : [channels];
    await Promise.all(
      groups
        .filter((group) => group.length > 0)
        .map((group) => this.#subscribeGroup(session, group, isSharded)),
    );
  }

  async #subscribeGroup(
    session: Session,
    group: readonly string[],
    isSharded: boolean,
  ): Promise<void> {
    try {
      await session.subscribe(group, isSharded, (message, channel) => {
        this.#subscriptions.get(channel)?.onMessage(message, channel);
      });
    } catch (error) {
      const failure = errorOfConnection(session.server, error);
      if (failure.kind !== 'cluster') {
        session.end(failure);
        return;
      }
      for (const channel of group) this.#subscriptions.get(channel)?.onMoved?.(failure);
      return;
    }
    for (const channel of group) this.#subscriptions.get(channel)?.onSubscribed();
  }

  async #evaluate(session: Session, call: ScriptCall): Promise<unknown> {
    const { script, keys, args, isAsking = false } = call;
    if (isAsking) session.send(['ASKING']).catch(() => {});
    const words = ['EVALSHA', script.sha1, String(keys.length), ...keys, ...args];
    const answer = session.send(words);
    const { waitForReplicas } = this.#options;
    if (waitForReplicas === 0 || script.readsOnly) return answer;
    const wait = ['WAIT', String(waitForReplicas), String(REDIS_CALL_DEADLINE_MS)];
    const [reply, replicas] = await Promise.all([answer, session.send(wait)]);
    if (typeof replicas === 'number' && replicas >= waitForReplicas) return reply;
    const text = `${replicas} of ${waitForReplicas} replicas have received a change`;
    throw new RedisError('notReplicated', `${session.server}: ${text}`);
  }

  #requireSession(): Session {
    if (this.#session !== undefined) return this.#session;
    // A call that fails at once is not the failure that broke the connection.
    throw new RedisError('unreachable', this.#error.message);
  }

  /** A primary that has become a replica, or a user that has changed: connect again. */
  #endIfUseless(session: Session, error: unknown): void {
    if (!(error instanceof RedisError)) return;
    if (error.kind === 'readOnly' || error.reply.startsWith('NOAUTH')) session.end(error);
  }

  async #sleep(ms: number): Promise<void> {
    await new Promise<void>((resolve) => {
      const timer = setTimeout(resolve, ms);
      this.#wake = () => {
        clearTimeout(timer);
        resolve();
      };
    });
  }
}
