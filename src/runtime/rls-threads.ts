/**
 * The threads of the rate limit service, as the main thread sees them: starts them, lets them
 * listen, and sends them rules and certificates. `decision-threads.ts` supervises them.
 */

import type { RlsConfiguration } from '../rls/config/configuration.ts';
import type { AddedHits } from '../rls/hit-counts.ts';
import type { FromRlsThread, RlsThreadData, RlsTlsContents, ToRlsThread } from '../rls/messages.ts';
import type { DecisionThreads, SupervisedThread } from './decision-threads.ts';

export class RlsThreads {
  readonly #threads: DecisionThreads;
  readonly #started: SupervisedThread[] = [];
  readonly #onHits: (added: AddedHits) => void;
  /** Resolves when all threads are ready. */
  readonly #whenReady: Promise<void>[] = [];
  #version = 0;
  /** Called when a configuration has become active on a thread. */
  #onConfigured = (_version: number) => {};

  /** @param onHits called with the hits that a thread has counted */
  constructor(threads: DecisionThreads, onHits: (added: AddedHits) => void) {
    this.#threads = threads;
    this.#onHits = onHits;
  }

  /** @param first the index of the first thread: the acceptors are before it */
  start(first: number, count: number, data: Omit<RlsThreadData, 'index'>): void {
    for (let number = 0; number < count; number++) {
      const isFirst = number === 0;
      const { listeners } = data;
      const own = isFirst ? listeners : { ...listeners, socket: undefined, jsonPort: undefined };
      this.#start(number, { ...data, index: first + number, listeners: own });
    }
  }

  /** Lets the threads listen when all are ready. @returns the threads */
  async listen(): Promise<readonly SupervisedThread[]> {
    await Promise.all(this.#whenReady);
    this.#send({ kind: 'listen' });
    return this.#started;
  }

  /** Replaces all rules. Resolves when they are active on every thread. One call at a time. */
  configure(configuration: RlsConfiguration): Promise<void> {
    const version = ++this.#version;
    let behind = this.#started.length;
    return new Promise((resolve) => {
      this.#onConfigured = (active) => {
        if (active === version && --behind === 0) resolve();
      };
      this.#send({ kind: 'configuration', version, configuration });
    });
  }

  /** Gives new connections another certificate. */
  renewTls(contents: RlsTlsContents): void {
    this.#send({ kind: 'tls', contents });
  }

  #start(number: number, data: RlsThreadData): void {
    let resolveReady = () => {};
    this.#whenReady.push(
      new Promise((resolve) => {
        resolveReady = resolve;
      }),
    );
    const supervised = this.#threads.start<FromRlsThread>(
      `RLS thread ${number}`,
      './rls.js',
      data,
      (message) => {
        switch (message.kind) {
          case 'ready':
            supervised.setReady();
            resolveReady();
            break;
          case 'configured':
            this.#onConfigured(message.version);
            break;
          case 'hits':
            this.#onHits(message.added);
            break;
        }
      },
    );
    this.#started.push(supervised);
  }

  #send(message: ToRlsThread): void {
    for (const { thread } of this.#started) thread.postMessage(message);
  }
}
