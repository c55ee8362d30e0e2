/**
 * The policies in force, on the main thread, which tells the acceptors. Read from the configuration
 * file at the start, and again on SIGHUP: then all of them change at once, or none.
 */

import { statSync } from 'node:fs';
import { StartError } from '../core/errors.ts';
import type { Policy } from '../policies/policy.ts';
import { type ConfigFile, changedSettings, readConfigFile } from './file.ts';
import { throwFault } from './setting-value.ts';

export class Policies {
  #file: ConfigFile | undefined;

  /** @param file undefined where there is none, and so no policy */
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
   * Takes over what is in the file now.
   * @param publish resolves when every acceptor has them in force
   * @returns settings that have changed in the file, and wait for the next start
   * @throws StartError that says what is wrong in the file; then nothing has changed
   */
  async reload(publish: (policies: readonly Policy[]) => Promise<void>): Promise<string[]> {
    const before = this.#file!;
    // One that waits for a writer would keep this thread from all else.
    if (statSync(before.path, { throwIfNoEntry: false })?.isFile() === false) {
      throw new StartError(`${before.path} is no regular file`);
    }
    const after = readConfigFile(before.path, before.source, throwFault);
    await publish(after.policies);
    this.#file = { ...after, settings: before.settings };
    return changedSettings(before, after);
  }
}
