/**
 * The registry's own connection to Redis, on the main thread. It connects again by itself. While it
 * is not connected, scripts fail at once, and nothing is queued.
 */

import { requirePackage } from '../../core/packages.ts';
import type { Script } from '../../redis/script.ts';
import { RedisFailure, type ScriptRunner } from './script-runner.ts';

const CONNECT_TIMEOUT_MS = 1_000;
const REPLY_TIMEOUT_MS = 1_000;
const RECONNECT_MS = { first: 50, last: 250 } as const;

/** Errors after which a script was certainly not executed. */
const REFUSALS = [
  ...['OOM', 'READONLY', 'MISCONF', 'NOREPLICAS', 'NOAUTH', 'NOPERM', 'LOADING', 'MASTERDOWN'],
  ...['CLUSTERDOWN', 'BUSY', 'TRYAGAIN', 'NOSCRIPT'],
];

export class RegistryConnection implements ScriptRunner {
  readonly #client: ReturnType<typeof openClient>;
  #isOpen = false;

  constructor(url: string) {
    this.#client = openClient(url);
    // Without a listener, a failure would end the process. Scripts report it.
    this.#client.on('error', () => {});
  }

  /** @throws RedisFailure */
  async run(script: Script, keys: readonly string[], args: readonly string[]): Promise<unknown> {
    if (!this.#isOpen) {
      this.#isOpen = true;
      this.#client.connect().catch(() => {});
    }
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

  async #send(command: readonly string[]): Promise<unknown> {
    if (!this.#client.isReady) throw new RedisFailure('there is no connection to it', false);
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
