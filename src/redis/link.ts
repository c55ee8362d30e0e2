/**
 * The interface of the engine and the registry to Redis: scripts, commands and subscriptions. It is
 * the same for one server, for Sentinels and for a cluster. Every failure is a RedisError. A
 * call fails at once while the server of its key is not connected.
 */

import type { RedisError } from './errors.ts';
import type { Script } from './script.ts';
import type { ServerFacts } from './server-facts.ts';

export interface RedisEvents {
  /** A server was connected, for the first time or again. */
  onConnected?: (facts: ServerFacts) => void;
  /** A connection was lost, or an attempt failed; once for attempts that fail alike. */
  onFailure?: (error: RedisError) => void;
}

export interface RedisLink {
  /** The keys of an identity are in one of these buckets: 1, or 64 in a cluster. */
  readonly bucketCount: number;
  /** The URL without user and password, for messages. */
  readonly target: string;
  /** The servers that are connected. */
  readonly servers: readonly ServerFacts[];
  /** Reads `servers` again. A server that does not answer keeps what it has said. */
  refresh(): Promise<void>;
  /** Whether the server of a key is connected; without a key, whether all servers are. */
  isConnected(key?: string): boolean;
  /** Resolves when `isConnected()`. @throws RedisError at the deadline, or if waiting is useless */
  ready(deadlineMs: number): Promise<void>;
  /**
   * Runs a script on the server of its first key. Only if it never ran there it is repeated.
   * @returns what the script returned, as the client decodes it: not validated
   * @throws RedisError
   */
  call(
    script: Script,
    keys: readonly string[],
    args: readonly (string | Buffer)[],
    deadlineMs?: number,
  ): Promise<unknown>;
  /**
   * Sends a command to the server of a key; without a key, to any server.
   * @throws RedisError
   */
  send(key: string | undefined, words: readonly string[], deadlineMs?: number): Promise<unknown>;
  /**
   * Subscribes channels for as long as the link is open. In a cluster they are sharded channels.
   * @param onMessage called with the index of the channel. If it throws a RedisError, for a message
   * that is invalid, the connection is lost and made again; any other error ends the thread
   * @param onSubscribed called after each subscription of a channel, also of a new connection:
   * messages before it may be lost
   */
  subscribe(
    channels: readonly string[],
    onMessage: (index: number, message: string) => void,
    onSubscribed: (index: number) => void,
  ): void;
  /** Closes all connections. Calls that wait for answers fail. */
  close(): void;
}
