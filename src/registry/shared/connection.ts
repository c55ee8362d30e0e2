/**
 * Runs the scripts of the registry over a link to Redis. While its server is not connected, they
 * fail at once, and nothing is queued.
 */

import { RedisError } from '../../redis/errors.ts';
import type { RedisLink } from '../../redis/link.ts';
import type { Script } from '../../redis/script.ts';
import { RedisFailure, type ScriptRunner } from './script-runner.ts';

/** Longer than for checks: a group of changes may be large. */
const DEADLINE_MS = 1_000;

export class RegistryConnection implements ScriptRunner {
  readonly #link: RedisLink;

  constructor(link: RedisLink) {
    this.#link = link;
  }

  async run(script: Script, keys: readonly string[], args: readonly string[]): Promise<unknown> {
    const isConnected = this.#link.isConnected(keys[0]);
    try {
      return await this.#link.call(script, keys, args, DEADLINE_MS);
    } catch (error) {
      throw failureOf(error as Error, isConnected);
    }
  }
}

/** @param wasConnected whether it was connected when the script was to be sent */
export function failureOf(error: Error, wasConnected: boolean): RedisFailure {
  if (!(error instanceof RedisError)) return new RedisFailure(error.message, wasConnected);
  const { kind, reply, message } = error;
  // An error inside a script comes after a part of it was executed.
  const isRefused = reply !== '' && kind !== 'rejected';
  const isExecuted = reply === '' && kind === 'notReplicated';
  return new RedisFailure(message, wasConnected && !isRefused, isExecuted);
}
