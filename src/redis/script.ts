/**
 * A Lua script that Redis runs. The connection runs it by its hash, and loads it where the server
 * does not have it: a restarted server, a new primary, or one whose scripts were flushed.
 */

import { createHash } from 'node:crypto';

export interface Script {
  readonly name: string;
  readonly text: string;
  /** By which EVALSHA knows it. */
  readonly sha1: string;
  /** Whether it changes nothing: it may run twice, and where writes are refused. */
  readonly readsOnly: boolean;
}

export function defineScript(name: string, text: string, { readsOnly = false } = {}): Script {
  const sha1 = createHash('sha1').update(text).digest('hex');
  return { name, text, sha1, readsOnly };
}
