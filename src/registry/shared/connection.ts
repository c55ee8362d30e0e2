/**
 * The registry's own connection to Redis, on the main thread. It connects again by itself. While it
 * is not connected, scripts fail at once, and nothing is queued.
 */

import { setTimeout as sleep } from 'node:timers/promises';
import { requirePackage } from '../../core/packages.ts';
import type { Script } from '../../redis/script.ts';
import { RedisFailure, type ScriptRunner } from './script-runner.ts';

const CONNECT_TIMEOUT_MS = 1_000;
const REPLY_TIMEOUT_MS = 1_000;
const FIRST_CONNECT_MS = 2_000;
const POLL_MS = 20;
const RECONNECT_MS = { first: 50, last: 250 } as const;

/** Errors after which a script was certainly not executed. */
const REFUSALS = [
  ...['OOM', 'READONLY', 'MISCONF', 'NOREPLICAS', 'NOAUTH', 'NOPERM', 'LOADING', 'MASTERDOWN'],
  ...['CLUSTERDOWN', 'BUSY', 'TRYAGAIN', 'NOSCRIPT'],
];

export class RegistryConnection implements ScriptRunner {
  readonly #client: ReturnType<typeof openClient>;
  #isOpen = false;
  #lastError = 'there is no connection to it';

  constructor(url: string) {
    this.#client = openClient(url);
    // Without a listener, a failure would end the process. Scripts report it.
    this.#client.on('error', ({ code, message }: NodeJS.ErrnoException) => {
      this.#lastError = message || (code ?? 'it cannot be reached');
    });
  }

  /** Resolves when it is connected for the first time. @throws RedisFailure if it cannot be */
  async connected(): Promise<void> {
    this.#connect();
    for (let waitedMs = 0; !this.#client.isReady; waitedMs += POLL_MS) {
      if (waitedMs >= FIRST_CONNECT_MS) throw new RedisFailure(this.#lastError, false);
      await sleep(POLL_MS);
    }
  }

  /** @throws RedisFailure */
  async run(script: Script, keys: readonly string[], args: readonly string[]): Promise<unknown> {
    this.#connect();
    const rest = [String(keys.length), ...keys, ...args];
    try {
      return await this.#send(['EVALSHA', script.sha1, ...rest]);
    } catch (error) {
      if (!(error as Error).message.startsWith('NOSCRIPT')) throw error;
    }
    return this.#send(['EVAL', script.text, ...rest]);
  }

  close(): void {
    if (this.#isOpen) this.#client.destroy();
  }

  #connect(): void {
    if (this.#isOpen) return;
    this.#isOpen = true;
    this.#client.connect().catch(() => {});
  }

  async #send(command: readonly string[]): Promise<unknown> {
    if (!this.#client.isReady) throw new RedisFailure(this.#lastError, false);
    let timer: NodeJS.Timeout | undefined;
    const timeout = new Promise<never>((_, reject) => {
      timer = setTimeout(() => reject(new Error('it sent no reply in time')), REPLY_TIMEOUT_MS);
    });
    try {
      return await Promise.race([this.#client.sendCommand(command), timeout]);
    } catch (error) {
      const { message } = error as Error;
      throw new RedisFailure(message, !REFUSALS.includes(message.split(' ')[0]));
    } finally {
      clearTimeout(timer);
    }
  }
}

function openClient(url: string) {
  const { createClient } = requirePackage('@redis/client');
  return createClient({
    url,
    RESP: 2,
    disableOfflineQueue: true,
    socket: {
      connectTimeout: CONNECT_TIMEOUT_MS,
      reconnectStrategy: (retries) =>
        Math.min(RECONNECT_MS.first * (retries + 1), RECONNECT_MS.last),
    },
  });
}
