/**
 * The active policies, on the main thread, which publishes them to the acceptors. They are read
 * from the configuration file at the start and again on SIGHUP. A reload replaces all or none.
 */

import { statSync } from 'node:fs';
import { StartError } from '../core/errors.ts';
import type { Policy } from '../policies/policy.ts';
import { type ConfigFile, changedSettings, readConfigFile } from './file.ts';
import { throwFault } from './setting-value.ts';

export class Policies {
  #file: ConfigFile | undefined;

  /** @param file undefined for no file and no policies */
  constructor(file: ConfigFile | undefined) {
    this.#file = file;
  }

  get path(): string | undefined {
    return this.#file?.path;
  }

  get all(): readonly Policy[] {
    return this.#file?.policies ?? [];
  }

  /**
   * Reads the file again and activates its policies.
   * @param publish resolves when every acceptor has activated the policies
   * @returns settings that have changed in the file and require a restart
   * @throws StartError for a fault in the file; then nothing has changed
   */
  async reload(publish: (policies: readonly Policy[]) => Promise<void>): Promise<string[]> {
    const before = this.#file!;
    // Reading a named pipe without a writer would block this thread.
    if (statSync(before.path, { throwIfNoEntry: false })?.isFile() === false) {
      throw new StartError(`${before.path} is no regular file`);
    }
    const after = readConfigFile(before.path, before.source, throwFault);
    await publish(after.policies);
    this.#file = { ...after, settings: before.settings };
    return changedSettings(before, after);
  }
}
