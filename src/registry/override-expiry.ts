/**
 * Ends overrides at their time, on the main thread. Acceptors compare no times: an override that
 * has ended is taken out of the tables, and they get the tables. Then its record is removed, as a
 * group commit.
 *
 * The tables do not wait for the removal. If the store or Redis cannot be written, an override ends
 * all the same, and the writer removes the record when it can. A removal reads what the registry
 * has then, and a group commit that another machine preceded is repeated on top of its changes. So
 * it never removes an override that was set again.
 */

import { AUDITED_ENDS_MAX, REMOVED_OVERRIDES_MAX } from '../core/constants.ts';
import { overrideChange, overridesDeletion } from './audit-entries.ts';
import type { Override, Registry } from './registry.ts';

interface ExpiryOptions {
  registry: Registry;
  /** Takes overrides out of the tables; resolves when no acceptor applies them any more. */
  publishEnds: (ended: readonly Override[]) => Promise<void>;
  /** Has the records removed, as soon as the store can be written. */
  removeRecords: () => void;
  nowMs: () => number;
}

export class OverrideExpiry {
  readonly #options: ExpiryOptions;
  /** Those that no acceptor applies any more, while their records are not removed. */
  readonly #published = new WeakSet<Override>();
  #isPublishing = false;
  #isClosed = false;

  constructor(options: ExpiryOptions) {
    this.#options = options;
  }

  /** Called when the clock ticks, because a timer of its own would not follow clock steps. */
  tick(): void {
    if (this.#isPublishing || this.#isClosed) return;
    const { registry, nowMs } = this.#options;
    const ended = registry.endedOverrides(nowMs());
    if (ended.length > 0) void this.#end(ended);
  }

  /** From now on, no override ends. */
  close(): void {
    this.#isClosed = true;
  }

  async #end(ended: readonly Override[]): Promise<void> {
    const { publishEnds, removeRecords } = this.#options;
    const published = this.#published;
    const applied = ended.filter((override) => !published.has(override));
    this.#isPublishing = true;
    // If this fails, the process ends, as it does where a change cannot be published.
    await publishEnds(applied);
    for (const override of applied) published.add(override);
    this.#isPublishing = false;
    if (!this.#isClosed) removeRecords();
  }
}

/**
 * Removes the records of overrides that have ended, with entries in the audit log: as many as one
 * group commit may remove, so that none takes long.
 */
export function removeEndedOverrides(registry: Registry, nowMs: number): void {
  removeRecords(registry, registry.endedOverrides(nowMs).slice(0, REMOVED_OVERRIDES_MAX), nowMs);
}

/** Removes the records of these overrides, which have ended. */
export function removeRecords(registry: Registry, ended: readonly Override[], nowMs: number): void {
  if (ended.length === 0) return;
  for (const override of ended) registry.removeOverride(override);
  const entries =
    ended.length <= AUDITED_ENDS_MAX
      ? ended.map((override) => overrideChange(registry, override, undefined))
      : [overridesDeletion(new Set(ended.map((one) => registry.namespaceOf(one))), ended.length)];
  for (const details of entries)
    registry.audit({ at: nowMs, ...details, keyId: null, by: 'expiry' });
}
