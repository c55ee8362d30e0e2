/** What the queue entries of the redis engine ask of a shard worker. */

/** The worker sends no reply to a prefetch and a report. */
export const ENTRY_KIND = {
  /** A check that needs tokens from Redis. */
  tokens: 3,
  /** The same; its cost is counted also if it is denied. */
  countedTokens: 4,
  /** A check of a batch: its tokens are reserved, until the batch commits or aborts them. */
  reserve: 5,
  /** More tokens for later checks. */
  prefetch: 6,
  /** An asynchronous check of a new counter, which the worker decides without Redis. */
  asyncNew: 7,
  /** Usage that is reported to Redis at once. */
  report: 8,
} as const;
