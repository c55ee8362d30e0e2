/** One server: that of the URL, or the primary that Sentinels name. */

import { REDIS_CALL_DEADLINE_MS, REDIS_DISCOVERY_MS } from '../core/constants.ts';
import { withDeadline } from './deadline.ts';
import { RedisError } from './errors.ts';
import type { RedisEvents, RedisLink } from './link.ts';
import type { Script } from './script.ts';
import { Sentinels } from './sentinels.ts';
import { type ConnectionOptions, ServerConnection } from './server-connection.ts';
import type { ServerFacts } from './server-facts.ts';
import { describeTarget, type RedisTarget } from './url.ts';

/** Failures that waiting does not end. */
export const LASTING_FAILURES: readonly string[] = ['denied', 'unsupported'];

export type LinkOptions = Pick<ConnectionOptions, 'tls' | 'credentials' | 'waitForReplicas'>;

export class SingleLink implements RedisLink {
  readonly bucketCount = 1;
  readonly target: string;
  readonly #connection: ServerConnection;
  readonly #sentinels: Sentinels | undefined;
  readonly #watch: NodeJS.Timeout | undefined;
  readonly #onFailures = new Set<(error: RedisError) => void>();

  constructor(target: RedisTarget, options: LinkOptions, events: RedisEvents) {
    this.target = describeTarget(target);
    const sentinels = target.kind === 'sentinel' ? new Sentinels(target, options) : undefined;
    this.#sentinels = sentinels;
    this.#connection = new ServerConnection({
      ...options,
      locate: () => sentinels?.locatePrimary() ?? target.addresses[0],
      authenticates: 'always',
      database: target.database,
      validate: (facts) => requirePrimary(facts, target.kind),
      onReady: (facts) => {
        if (facts !== undefined) events.onConnected?.(facts);
      },
      onFailure: (error) => {
        events.onFailure?.(error);
        for (const notify of this.#onFailures) notify(error);
      },
    });
    if (sentinels !== undefined) {
      this.#watch = setInterval(() => void this.#followPrimary(sentinels), REDIS_DISCOVERY_MS);
    }
  }

  get servers(): readonly ServerFacts[] {
    const { facts } = this.#connection;
    return facts === undefined ? [] : [facts];
  }

  refresh(): Promise<void> {
    return this.#connection.refreshFacts();
  }

  isConnected(): boolean {
    return this.#connection.isReady;
  }

  async ready(deadlineMs: number): Promise<void> {
    let notify = (_: RedisError) => {};
    const useless = new Promise<never>((_, reject) => {
      notify = (error) => {
        if (LASTING_FAILURES.includes(error.kind)) reject(error);
      };
    });
    this.#onFailures.add(notify);
    notify(this.#connection.error);
    try {
      await withDeadline(this.target, deadlineMs, (attempt) => {
        return Promise.race([this.#connection.whenReady(attempt), useless]);
      });
    } catch (error) {
      const isTimeout = error instanceof RedisError && error.kind === 'timeout';
      throw isTimeout ? this.#connection.error : error;
    } finally {
      this.#onFailures.delete(notify);
    }
    if (!this.isConnected()) throw this.#connection.error;
  }

  call(
    script: Script,
    keys: readonly string[],
    args: readonly (string | Buffer)[],
    deadlineMs = REDIS_CALL_DEADLINE_MS,
  ): Promise<unknown> {
    return withDeadline(this.target, deadlineMs, () =>
      this.#connection.run({ script, keys, args }),
    );
  }

  send(
    _key: string | undefined,
    words: readonly string[],
    deadlineMs = REDIS_CALL_DEADLINE_MS,
  ): Promise<unknown> {
    return withDeadline(this.target, deadlineMs, () => this.#connection.send(words));
  }

  subscribe(
    channels: readonly string[],
    onMessage: (index: number, message: string) => void,
    onSubscribed: (index: number) => void,
  ): void {
    for (const [index, channel] of channels.entries()) {
      this.#connection.subscribe(channel, {
        isSharded: false,
        onMessage: (message) => onMessage(index, message),
        onSubscribed: () => onSubscribed(index),
      });
    }
  }

  close(): void {
    clearInterval(this.#watch);
    this.#sentinels?.close();
    this.#connection.close();
  }

  /** Leaves a primary that Sentinels have replaced, also if it still answers. */
  async #followPrimary(sentinels: Sentinels): Promise<void> {
    const { address } = this.#connection;
    if (address === undefined) return;
    let primary: { host: string; port: number };
    try {
      primary = await sentinels.locatePrimary({ waits: false });
    } catch {
      // Without Sentinels the known primary is the best there is.
      return;
    }
    if (this.#connection.address !== address) return;
    if (primary.host === address.host && primary.port === address.port) return;
    const text = 'the Sentinels name another primary';
    this.#connection.reconnect(new RedisError('unreachable', `${this.target}: ${text}`));
  }
}

function requirePrimary({ server, isReplica, isClusterNode }: ServerFacts, kind: string): void {
  if (isClusterNode) {
    const text = 'it is a node of a cluster, for which the URL begins with redis+cluster://';
    throw new RedisError('unsupported', `${server}: ${text}`);
  }
  if (!isReplica) return;
  const text =
    kind === 'sentinel'
      ? 'the Sentinels name it as the primary, but it is a replica'
      : 'it is a replica, and the URL must name the primary';
  throw new RedisError('readOnly', `${server}: ${text}`);
}
