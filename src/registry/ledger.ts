/**
 * Where the changes of a group become durable: in the store of this machine or, with Redis, in the
 * registry that all machines share.
 */

import { storageErrorCode } from '../core/errno.ts';
import type { Registry } from './registry.ts';
import type { Change, Store } from './store/store.ts';

export type Commit =
  /** The changes are durable and applied to the registry. */
  | { status: 'committed'; changes: readonly Change[] }
  /** Another machine has changed the registry, and these changes are applied now. */
  | { status: 'conflict' }
  /** The message says whether something may have been changed. */
  | { status: 'failed'; message: string; error: unknown; path?: string };

export interface Ledger {
  /** Whether the last write has failed. Commits without changes find out whether that is over. */
  readonly isFailing: boolean;
  /**
   * Takes the journal of the registry and makes its changes durable, all or none. Unless it does,
   * they are rolled back. Never rejects.
   */
  commit(registry: Registry): Promise<Commit>;
}

/** The store of this machine. No other machine changes it. */
export class LocalLedger implements Ledger {
  readonly #store: Store;

  constructor(store: Store) {
    this.#store = store;
  }

  get isFailing(): boolean {
    return this.#store.writeError !== undefined;
  }

  async commit(registry: Registry): Promise<Commit> {
    try {
      return { status: 'committed', changes: registry.commit(this.#store) };
    } catch (error) {
      registry.rollBack(0);
      const code = storageErrorCode(error);
      const cause = code === undefined ? '' : ` (${code})`;
      const message = `the store cannot be written to at the moment${cause}; nothing was changed`;
      return { status: 'failed', message, error, path: this.#store.path };
    }
  }
}
