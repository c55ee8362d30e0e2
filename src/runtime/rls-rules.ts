/**
 * The rules of the rate limit service, on the main thread: has a thread read the files at the
 * start, and again when one of them changes and on SIGHUP. A start fails where they are invalid.
 * Later an invalid file is logged, counted and shown by /readyz, and keeps all rules as they are.
 */

import { Worker } from 'node:worker_threads';
import { RLS_POLL_MS } from '../core/constants.ts';
import { StartError } from '../core/errors.ts';
import { EXIT } from '../core/exit.ts';
import type { Log } from '../core/log.ts';
import type { RlsConfiguration } from '../rls/config/configuration.ts';
import { folderSignature } from '../rls/config/folder.ts';
import type { RlsSettings } from '../rls/config/settings.ts';
import type { LoadedRules, RulesToLoad } from '../rls/messages.ts';

type Activate = (configuration: RlsConfiguration) => Promise<void>;

export class RlsRules {
  readonly initial: RlsConfiguration;
  readonly #settings: RlsSettings;
  /** Of the files that were read last, valid or not; undefined if they could not be read. */
  #signature: string | undefined;
  /** Of the files at the last poll. */
  #seenSignature: string | undefined;
  #fault: string | undefined;
  readonly #loads = { success: 1, error: 0 };
  #timer: NodeJS.Timeout | undefined;
  #reload: () => Promise<void> = () => Promise.resolve();

  private constructor(settings: RlsSettings, initial: RlsConfiguration, signature: string) {
    this.#settings = settings;
    this.initial = initial;
    this.#signature = signature;
    this.#seenSignature = signature;
  }

  /** Reads the files. Rejects with a StartError where they are missing or invalid. */
  static async load(settings: RlsSettings): Promise<RlsRules> {
    const loaded = await loadRules(settings);
    if ('fault' in loaded) throw new StartError(loaded.fault, EXIT.USAGE);
    return new RlsRules(settings, loaded.configuration, loaded.signature);
  }

  /** How many times files were read, by result. */
  get loads(): Readonly<Record<'success' | 'error', number>> {
    return this.#loads;
  }

  /** Why the files are not in use as they are now; undefined if they are. */
  get fault(): string | undefined {
    return this.#fault;
  }

  /** Follows the files. @param activate resolves when a configuration is active */
  watch(log: Log, activate: Activate): void {
    let lastLoad: Promise<void> = Promise.resolve();
    let isPolling = false;
    const enqueue = (work: () => Promise<void>) => {
      lastLoad = lastLoad.then(work);
      return lastLoad;
    };
    this.#reload = () => enqueue(() => this.#load(log, activate));
    this.#timer = setInterval(() => {
      if (isPolling) return;
      isPolling = true;
      void enqueue(async () => {
        if (this.#haveChanged()) await this.#load(log, activate);
        isPolling = false;
      });
    }, RLS_POLL_MS);
  }

  /** Reads the files again, also if none has changed. Never rejects. */
  reload(): Promise<void> {
    return this.#reload();
  }

  close(): void {
    clearInterval(this.#timer);
  }

  /** Whether files differ from those read last. A file that is being written differs each time. */
  #haveChanged(): boolean {
    let signature: string | undefined;
    try {
      signature = folderSignature(this.#settings.config);
    } catch (error) {
      // The folder cannot be read: `#load` says why.
      if (!(error instanceof StartError)) throw error;
    }
    const isSettled = signature === this.#seenSignature;
    this.#seenSignature = signature;
    return isSettled && signature !== this.#signature;
  }

  async #load(log: Log, activate: Activate): Promise<void> {
    const { config } = this.#settings;
    const loaded = await loadRules(this.#settings);
    this.#signature = loaded.signature;
    if ('fault' in loaded) {
      this.#fault = loaded.fault;
      this.#loads.error++;
      log.error(
        { config },
        `the rules of the rate limit service stay as they were: ${loaded.fault}`,
      );
      return;
    }
    await activate(loaded.configuration);
    this.#fault = undefined;
    this.#loads.success++;
    const { length: domains } = loaded.configuration.domains;
    log.info({ config, domains }, 'the rules of the rate limit service were loaded');
  }
}

/** Never rejects: a thread that fails has a fault, too. */
function loadRules({ config: folder, isCompatible, mergesDomains }: RlsSettings) {
  const workerData: RulesToLoad = { folder, isCompatible, mergesDomains };
  return new Promise<LoadedRules>((resolve) => {
    const thread = new Worker(new URL('./load-rules.js', import.meta.url), { workerData });
    const fail = (why: string) => {
      const fault = `${folder} (WEIR_RLS_CONFIG) could not be read: ${why}`;
      resolve({ signature: undefined, fault });
    };
    thread.once('message', resolve);
    thread.once('error', ({ message }) => fail(message));
    thread.once('exit', (code) => fail(`its thread ended with code ${code}`));
  });
}
