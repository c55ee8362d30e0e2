/**
 * One connection to one server, with RESP3, through the client of npm. It ends with its first
 * failure and is not used again: a client that goes on after an answer that is not the protocol
 * would give answers to the wrong commands. Nothing that it receives ends the process.
 */

import type { RedisClient, TypeMapping } from '@redis/client';
import {
  REDIS_CONNECT_DEADLINE_MS,
  REDIS_KEEPALIVE_MS,
  REDIS_PENDING_COMMANDS_MAX,
} from '../core/constants.ts';
import { requirePackage } from '../core/packages.ts';
import { errorOfConnection, errorOfReply, RedisError } from './errors.ts';
import { describeAddress, type RedisAddress } from './url.ts';

/** Without modules of Redis. */
type None = Record<string, never>;
type Client = RedisClient<None, None, None, 3, TypeMapping>;

export interface Credentials {
  username: string | undefined;
  password: string;
}

export interface SessionOptions {
  address: RedisAddress;
  /** PEM texts; undefined without TLS. */
  tls: { ca: string | undefined; cert: string | undefined; key: string | undefined } | undefined;
  credentials: Credentials | undefined;
  database: number;
}

export type MessageListener = (message: string, channel: string) => void;

export class Session {
  readonly address: RedisAddress;
  /** The address, for messages. */
  readonly server: string;
  /** Resolves when the session has ended, with the reason. It never rejects. */
  readonly ended: Promise<RedisError>;
  readonly #client: Client;
  readonly #resolveEnded: (error: RedisError) => void;
  #error: RedisError | undefined;
  /** By channel. The client would drop a subscription that is made before they are done. */
  readonly #unsubscriptions = new Map<string, Promise<unknown>>();
  #keepalive: NodeJS.Timeout | undefined;
  #pending = 0;
  #answers = 0;
  #answersBefore = 0;
  #silentIntervals = 0;
  #probes = 0;
  #isProbing = false;

  constructor(options: SessionOptions) {
    this.address = options.address;
    this.server = describeAddress(options.address);
    let resolveEnded: (error: RedisError) => void = () => {};
    this.ended = new Promise((resolve) => {
      resolveEnded = resolve;
    });
    this.#resolveEnded = resolveEnded;
    this.#client = createClient(options);
    this.#client.on('error', (error) => this.end(this.#classify(error)));
    this.#client.on('end', () => this.end(this.#classify(new Error('the connection was closed'))));
    // The client does not end a socket that is being opened: it is ended when it is open.
    for (const event of ['connect', 'ready']) {
      this.#client.on(event, () => {
        if (this.#error !== undefined) this.#client.destroy();
      });
    }
  }

  /** Connects and authenticates. @throws RedisError */
  async connect(): Promise<void> {
    const timer = setTimeout(() => {
      const text = `no connection within ${REDIS_CONNECT_DEADLINE_MS} ms`;
      this.end(new RedisError('timeout', `${this.server}: ${text}`));
    }, REDIS_CONNECT_DEADLINE_MS);
    const connected = this.#client.connect().then(
      () => undefined,
      (error) => this.end(this.#classify(error)),
    );
    await Promise.race([connected, this.ended]);
    clearTimeout(timer);
    if (this.#error !== undefined) throw this.#error;
    this.#keepalive = setInterval(() => this.#keepAlive(), REDIS_KEEPALIVE_MS);
  }

  /** Why it has ended; undefined while it can be used. */
  get error(): RedisError | undefined {
    return this.#error;
  }

  /** @throws RedisError */
  send(words: readonly (string | Buffer)[]): Promise<unknown> {
    if (this.#error !== undefined) {
      return Promise.reject(new RedisError('unreachable', this.#error.message));
    }
    return this.#track(this.#client.sendCommand(words));
  }

  /** @param isSharded for channels of a cluster, all of one slot. @throws RedisError */
  async subscribe(
    channels: readonly string[],
    isSharded: boolean,
    listener: MessageListener,
  ): Promise<void> {
    await Promise.all(channels.map((channel) => this.#unsubscriptions.get(channel)));
    if (this.#error !== undefined) throw new RedisError('unreachable', this.#error.message);
    const listen: MessageListener = (message, channel) => {
      try {
        listener(message, channel);
      } catch (error) {
        if (error instanceof RedisError) {
          this.end(error);
          return;
        }
        // Thrown here, an error of the program would count as an error of the protocol.
        queueMicrotask(() => {
          throw error;
        });
      }
    };
    const all = [...channels];
    const client = this.#client;
    const done = isSharded ? client.sSubscribe(all, listen) : client.subscribe(all, listen);
    await this.#track(done);
  }

  /** Of sharded channels. Its failure means nothing: the session then ends. */
  async unsubscribe(channel: string): Promise<void> {
    if (this.#error !== undefined) return;
    const done = this.#track(this.#client.sUnsubscribe(channel)).catch(() => {});
    this.#unsubscriptions.set(channel, done);
    await done;
    if (this.#unsubscriptions.get(channel) === done) this.#unsubscriptions.delete(channel);
  }

  /** The server ends the subscription of a sharded channel whose slot has moved. */
  onChannelMoved(listener: (channel: string) => void): void {
    this.#client.on('sharded-channel-moved', listener);
  }

  /** Ends the session. Commands that wait for their answers fail. */
  end(error: RedisError): void {
    if (this.#error !== undefined) return;
    this.#error = error;
    clearInterval(this.#keepalive);
    this.#resolveEnded(error);
    this.#client.destroy();
  }

  async #track<T>(answer: Promise<T>): Promise<T> {
    this.#pending++;
    try {
      return await answer;
    } catch (error) {
      throw this.#classify(error);
    } finally {
      this.#pending--;
      this.#answers++;
    }
  }

  /**
   * Finds out about a connection that is open, but over which nothing comes any more; or on which
   * an answer was lost, so that each command gets the answer of the one before.
   */
  #keepAlive(): void {
    const isSilent = this.#pending > 0 && this.#answers === this.#answersBefore;
    this.#answersBefore = this.#answers;
    this.#silentIntervals = isSilent ? this.#silentIntervals + 1 : 0;
    if (this.#silentIntervals >= 2) {
      const text = `no answer for ${2 * REDIS_KEEPALIVE_MS} ms`;
      this.end(new RedisError('timeout', `${this.server}: ${text}`));
    } else if (!this.#isProbing) {
      void this.#probe();
    }
  }

  async #probe(): Promise<void> {
    const text = `weir keepalive ${++this.#probes}`;
    this.#isProbing = true;
    try {
      if ((await this.send(['PING', text])) === text) return;
      const reason = 'a command got the answer of another one';
      this.end(new RedisError('unexpectedReply', `${this.server}: ${reason}`));
    } catch {
      // The session has ended, or the server rejects PING. The next probe tries again.
    } finally {
      this.#isProbing = false;
    }
  }

  #classify(error: unknown): RedisError {
    const { ErrorReply } = requirePackage('@redis/client');
    if (error instanceof ErrorReply) {
      const { message } = error;
      if (!/^NOPROTO|^ERR unknown command '?`?HELLO/i.test(message)) {
        return errorOfReply(this.server, message);
      }
      const text = 'the server does not know RESP3: Redis 7.0 or Valkey 7.2 is required';
      return new RedisError('unsupported', `${this.server}: ${text}`, message);
    }
    // The connection has ended: the reason is better known than to the client.
    if (this.#error !== undefined) return new RedisError('lost', this.#error.message);
    const isDecodingError =
      error instanceof TypeError ||
      error instanceof RangeError ||
      (error instanceof Error && error.message.startsWith('Unknown RESP type'));
    if (isDecodingError) {
      const text = 'the answer is not the protocol of Redis';
      return new RedisError('unexpectedReply', `${this.server}: ${text}`);
    }
    if (error instanceof Error && error.message === 'The queue is full') {
      const text = `${REDIS_PENDING_COMMANDS_MAX} commands wait for their answers`;
      return new RedisError('timeout', `${this.server}: ${text}`);
    }
    return errorOfConnection(this.server, error);
  }
}

/** Loads the package of the client, which blocks the thread for 0.1 s or more. */
export function prepareClients(): void {
  requirePackage('@redis/client');
}

function createClient({ address, tls, credentials, database }: SessionOptions): Client {
  const { host, port } = address;
  const common = {
    host,
    port,
    reconnectStrategy: false,
    connectTimeout: REDIS_CONNECT_DEADLINE_MS,
  } as const;
  const { ca, cert, key } = tls ?? {};
  const socket =
    tls === undefined
      ? common
      : {
          ...common,
          tls: true as const,
          ...(ca !== undefined && { ca }),
          ...(cert !== undefined && { cert }),
          ...(key !== undefined && { key }),
        };
  const { username, password } = credentials ?? {};
  // `createClient` adds hundreds of commands to the client, which take 15 MiB in each thread.
  const { RedisClient } = requirePackage('@redis/client');
  return new RedisClient({
    RESP: 3,
    name: 'weir',
    database,
    ...(username !== undefined && { username }),
    ...(password !== undefined && { password }),
    disableOfflineQueue: true,
    disableClientInfo: true,
    maintNotifications: 'disabled',
    commandsQueueMaxLength: REDIS_PENDING_COMMANDS_MAX,
    // Its own timeout ends when a command is written; callers have their own deadlines.
    commandOptions: { timeout: 0 },
    socket,
  });
}
