/**
 * The layout of a channel: the shared memory of one acceptor and one shard worker, with a queue in
 * each direction. The main thread allocates it, both attach to it. A test pins the numbers.
 *
 *   line 0   header              int32: acceptor | worker
 *   line 1   head                int32: entries enqueued      written by the acceptor
 *   line 2   tail                int32: entries done          written by the worker
 *   line 3   reply head          int32: replies enqueued      written by the worker
 *   line 4   reply tail          int32: replies read          written by the acceptor
 *   line 5   notification flag   int32: 1: the acceptor requests a message about the next reply
 *   line 6+  entries             CHECK_QUEUE_ENTRIES of 64 bytes
 *   then     replies             REPLY_QUEUE_ENTRIES of 32 bytes
 *
 *   entry    float64 0   limit      1   duration, ms      2   cost
 *            float64 3   burst; of a deduction: window of the decision
 *            int32   8   hash 0-3  12   namespace tag
 *            int32  13   kind       of its engine, and the number of the window rule << 8
 *            int32  14   state      one of ENTRY_STATE
 *            int32  15   number     the head at which it was enqueued
 *
 *   reply    float64 0   remaining  1   reset      2   passesAt
 *            int32   6   number     that of the entry
 *            int32   7   result     one of OUTCOME, and 256 where the check is allowed
 *
 * A deduction needs no burst: its check was allowed. Heads and tails only grow, and wrap as int32;
 * an entry is at its number modulo the capacity.
 */

import {
  CACHE_LINE_BYTES,
  CHECK_QUEUE_ENTRIES,
  REPLY_QUEUE_ENTRIES,
} from '../../core/constants.ts';

export const CHANNEL_HEADER = { acceptor: 0, worker: 1 } as const;

const LINE_WORDS = CACHE_LINE_BYTES / 4;
export const HEAD = 1 * LINE_WORDS;
export const TAIL = 2 * LINE_WORDS;
export const REPLY_HEAD = 3 * LINE_WORDS;
export const REPLY_TAIL = 4 * LINE_WORDS;
export const NOTIFICATION_FLAG = 5 * LINE_WORDS;

export const ENTRY_WORDS = LINE_WORDS;
export const REPLY_WORDS = 8;
export const ENTRIES_AT = 6 * LINE_WORDS;
export const REPLIES_AT = ENTRIES_AT + CHECK_QUEUE_ENTRIES * ENTRY_WORDS;
export const CHANNEL_BYTES = 4 * (REPLIES_AT + REPLY_QUEUE_ENTRIES * REPLY_WORDS);

/** The bytes of the channels between all acceptors and all shard workers. */
export function channelsBytes(acceptors: number, workers: number): number {
  return acceptors * workers * CHANNEL_BYTES;
}

/** Offsets from the start of an entry: below 8 in doubles, the others in words. */
export const ENTRY = {
  limit: 0,
  durationMs: 1,
  cost: 2,
  /** The burst of the check, of a deduction the window of its decision. */
  burstOrWindow: 3,
  hash: 8,
  namespaceTag: 12,
  kind: 13,
  state: 14,
  number: 15,
} as const;

export const REPLY = { remaining: 0, reset: 1, passesAt: 2, number: 6, result: 7 } as const;

/** The bit of an allowed check in the `result` word of a reply, above its outcome. */
export const REPLY_ALLOWED = 256;

/** The number of the window rule lies above the kind. */
const RULE_SHIFT = 8;

/** The `kind` word of an entry: its kind and the number of its window rule. */
export function kindWord(kind: number, rule: number): number {
  return kind | (rule << RULE_SHIFT);
}

export function kindOf(word: number): number {
  return word & ((1 << RULE_SHIFT) - 1);
}

export function ruleOf(word: number): number {
  return word >>> RULE_SHIFT;
}

/**
 * A queued entry is claimed by the worker or withdrawn by the acceptor, whichever is first. A
 * worker that starts and finds an entry claimed repeats it: its predecessor died over it. An entry
 * that is found repeated is given up: two workers died over it. Entries that end in any order are
 * marked as done, until those before them are done too.
 */
export const ENTRY_STATE = { queued: 1, claimed: 2, withdrawn: 3, repeated: 4, done: 5 } as const;
