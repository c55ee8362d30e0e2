/** What the queue entries of the memory engine ask of a shard worker. */

/** The worker sends no reply to a deduction. */
export const ENTRY_KIND = { deduction: 1, check: 2 } as const;
