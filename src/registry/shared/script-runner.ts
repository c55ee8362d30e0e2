/**
 * What the registry needs of a connection to Redis: scripts, one after the other. A script that
 * fails is an error that says whether it may have been executed.
 */

import type { Script } from '../../redis/script.ts';

export interface ScriptRunner {
  /**
   * @param keys all in one slot
   * @returns the reply, not validated yet
   * @throws RedisFailure
   */
  run(script: Script, keys: readonly string[], args: readonly string[]): Promise<unknown>;
}

export class RedisFailure extends Error {
  /** Whether the script may have been executed: its reply was lost, or is no reply to it. */
  readonly isUncertain: boolean;
  /** Whether it was executed, but too few replicas have its changes. */
  readonly isExecuted: boolean;

  constructor(message: string, isUncertain: boolean, isExecuted = false) {
    super(message);
    this.isUncertain = isUncertain;
    this.isExecuted = isExecuted;
  }
}
