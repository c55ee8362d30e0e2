/**
 * The rate limit service on the main thread, where it is on: its rules, its certificate, its
 * threads, and the hits of its limits.
 */

import { RLS_CONNECTIONS_MAX } from '../core/constants.ts';
import type { Log } from '../core/log.ts';
import type { DecisionThreadData } from '../decision-thread/messages.ts';
import { HitTotals } from '../observe/rls-series.ts';
import type { RlsSettings } from '../rls/config/settings.ts';
import type { RlsListeners } from '../rls/messages.ts';
import type { DecisionThreads, SupervisedThread } from './decision-threads.ts';
import { RlsRules } from './rls-rules.ts';
import { RlsThreads } from './rls-threads.ts';
import { RlsTls } from './rls-tls.ts';

export class Rls {
  readonly settings: RlsSettings;
  readonly rules: RlsRules;
  readonly tls: RlsTls | undefined;
  readonly hits = new HitTotals();
  #threads: RlsThreads | undefined;

  private constructor(settings: RlsSettings, rules: RlsRules) {
    this.settings = settings;
    this.rules = rules;
    this.tls = RlsTls.open(settings);
  }

  /** Reads the rules and the certificate. Rejects with a StartError. */
  static async open(settings: RlsSettings): Promise<Rls> {
    return new Rls(settings, await RlsRules.load(settings));
  }

  /** Starts its threads. @param first the index of the first one */
  start(
    threads: DecisionThreads,
    first: number,
    data: Omit<DecisionThreadData, 'index'>,
    listeners: RlsListeners,
  ): void {
    const { settings, tls, rules } = this;
    this.#threads = new RlsThreads(threads, (added) => this.hits.add(added));
    this.#threads.start(first, settings.threads, {
      ...data,
      settings,
      listeners,
      tls: tls?.contents,
      configuration: rules.initial,
      connectionsMax: RLS_CONNECTIONS_MAX,
    });
  }

  /** Lets the threads listen. */
  listen(): Promise<readonly SupervisedThread[]> {
    return this.#threads!.listen();
  }

  /** Follows the files of the rules. */
  watch(log: Log): void {
    this.rules.watch(log, (configuration) => this.#threads!.configure(configuration));
  }

  /** Reads rules and certificate again, on SIGHUP. */
  async reload(log: Log): Promise<void> {
    await this.rules.reload();
    const { tls } = this;
    if (tls === undefined) return;
    try {
      if (!tls.reload()) return;
      this.#threads!.renewTls(tls.contents);
      log.info({ cert: tls.path }, 'SIGHUP: the certificate of WEIR_RLS_PORT was reloaded');
    } catch (error) {
      const { message } = error as Error;
      log.error(`SIGHUP: the certificate of WEIR_RLS_PORT was not reloaded: ${message}`);
    }
  }

  close(): void {
    this.rules.close();
  }
}
