/**
 * The acceptor threads, as the main thread sees them: starts them, lets them listen, runs their
 * operations, and renews their certificate. `decision-threads.ts` supervises them.
 */

import type { UnknownField } from '../api/common/unknown-fields.ts';
import type {
  CounterOperationRequest,
  CounterOperationResult,
  OperationRequest,
  OperationResult,
} from '../api/operations/messages.ts';
import { StartError } from '../core/errors.ts';
import type { AppDescriptors } from '../server/apps.ts';
import type { AcceptorData, DebugRecord, ToAcceptor, ToMain } from '../server/messages.ts';
import { CounterOperations } from './counter-operations.ts';
import type { DecisionThreads, SupervisedThread } from './decision-threads.ts';

/** Handlers of acceptors' messages, once the acceptors listen. */
export interface AcceptorHandlers {
  onUnknownField: (field: UnknownField) => void;
  onDebugRecord: (acceptor: number, record: DebugRecord) => void;
  runOperation: (request: OperationRequest) => Promise<OperationResult>;
}

interface Acceptor {
  supervised: SupervisedThread;
  /** Resolves with its Apps, which the listening acceptor needs. */
  whenReady: Promise<AppDescriptors>;
  /** Called with the App that it has made for a new certificate, or with its error. */
  onTlsRenewal: (app: number | StartError) => void;
}

export class Acceptors {
  readonly #threads: DecisionThreads;
  readonly #acceptors: Acceptor[] = [];
  readonly #counterOperations: CounterOperations;
  /** Set by `listen`. */
  #handlers!: AcceptorHandlers;
  /** Called when new connections go to the new Apps. */
  #onAppsReplaced = () => {};

  constructor(threads: DecisionThreads, count: number) {
    this.#threads = threads;
    this.#counterOperations = new CounterOperations(count, (index, number, request) => {
      this.#send({ kind: 'counterOperation', number, request }, [this.#acceptors[index]]);
    });
  }

  /** Starts all acceptors, whose indexes are the first of all decision threads. */
  start(count: number, data: Omit<AcceptorData, 'index'>): void {
    for (let index = 0; index < count; index++) this.#startAcceptor({ ...data, index });
  }

  /**
   * Lets the first acceptor listen when all are ready.
   * @returns the acceptor that listens
   */
  async listen(handlers: AcceptorHandlers): Promise<SupervisedThread> {
    this.#handlers = handlers;
    const [first] = this.#acceptors;
    const apps = await Promise.all(this.#acceptors.map(({ whenReady }) => whenReady));
    this.#send({ kind: 'listen', apps }, [first]);
    return first.supervised;
  }

  /** Has an acceptor run an operation on counters. @throws ApiError (503) */
  runCounterOperation(request: CounterOperationRequest): Promise<CounterOperationResult> {
    return this.#counterOperations.run(request);
  }

  /**
   * Makes new connections use the certificate that is in the files now. Open connections keep the
   * certificate that they have.
   * @param areFilesUnchanged called when all acceptors have read the files
   * @throws StartError where an acceptor cannot use the files; then nothing has changed
   */
  async renewTls(areFilesUnchanged: () => boolean): Promise<void> {
    const renewed = this.#acceptors.map((acceptor) => {
      return new Promise<number | StartError>((resolve) => {
        acceptor.onTlsRenewal = resolve;
      });
    });
    this.#send({ kind: 'reloadTls' });
    const results = await Promise.all(renewed);
    const apps = results.map((app) => {
      if (app instanceof StartError) throw app;
      return app;
    });
    if (!areFilesUnchanged())
      throw new StartError('the files for TLS changed while they were read');
    const replaced = new Promise<void>((resolve) => {
      this.#onAppsReplaced = resolve;
    });
    this.#send({ kind: 'distribute', apps }, this.#acceptors.slice(0, 1));
    await replaced;
  }

  #send(message: ToAcceptor, acceptors: readonly Acceptor[] = this.#acceptors): void {
    for (const { supervised } of acceptors) supervised.thread.postMessage(message);
  }

  #startAcceptor(data: AcceptorData): void {
    const { index } = data;
    let resolveReady = (_apps: AppDescriptors) => {};
    const whenReady = new Promise<AppDescriptors>((resolve) => {
      resolveReady = resolve;
    });
    const supervised = this.#threads.start<ToMain>(
      `acceptor ${index}`,
      './acceptor.js',
      data,
      (message) => {
        switch (message.kind) {
          case 'ready':
            supervised.setReady();
            resolveReady(message.apps);
            break;
          case 'tlsReloaded':
            acceptor.onTlsRenewal(message.app);
            break;
          case 'tlsReloadFailed':
            acceptor.onTlsRenewal(new StartError(message.reason));
            break;
          case 'distributing':
            this.#onAppsReplaced();
            break;
          case 'debug':
            this.#handlers.onDebugRecord(index, message.record);
            break;
          case 'unknownField':
            this.#handlers.onUnknownField(message.field);
            break;
          case 'operation':
            void this.#runOperation(supervised, message.number, message.request);
            break;
          case 'counterResult':
            this.#counterOperations.complete(message.number, message.result);
            break;
        }
      },
    );
    const acceptor: Acceptor = { supervised, whenReady, onTlsRenewal: () => {} };
    this.#acceptors.push(acceptor);
  }

  async #runOperation(
    { thread }: SupervisedThread,
    number: number,
    request: OperationRequest,
  ): Promise<void> {
    const result = await this.#handlers.runOperation(request);
    thread.postMessage({ kind: 'result', number, result } satisfies ToAcceptor);
  }
}
