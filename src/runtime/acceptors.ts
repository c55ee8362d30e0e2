/**
 * The acceptors as the main thread sees them: starts them, watches that their loops turn, passes on
 * what all must know, and drains them. One that dies, fails or hangs ends the process at once.
 *
 * Signs of life are counted in looks of this thread, not in time: a process that was stopped and
 * goes on has missed none.
 */

import { MessageChannel, type MessagePort, Worker } from 'node:worker_threads';
import type { OperationRequest, OperationResult } from '../api/common/operations.ts';
import { HEARTBEAT_MS, MISSED_HEARTBEATS_MAX } from '../core/constants.ts';
import { StartError } from '../core/errors.ts';
import { killProcess } from '../core/fatal.ts';
import type { Publication } from '../registry/publication.ts';
import type { AppDescriptors } from '../server/apps.ts';
import type { AcceptorData, DebugRecord, ToAcceptor, ToMain } from '../server/messages.ts';
import type { InternalErrorReport } from '../server/responder.ts';
import type { Control } from '../shared-memory/control.ts';
import type { AcceptorStats } from '../shared-memory/stats.ts';

interface Acceptor {
  worker: Worker;
  stats: AcceptorStats;
  lastHeartbeats: number;
  missedHeartbeats: number;
  isDraining: boolean;
  /** The last publication that it has in force. */
  activeVersion: number;
  /** Its Apps, for the one that listens. */
  whenReady: Promise<AppDescriptors>;
  /** Called with an App that it was told to make, or with why it could not. */
  onTlsRenewal: (app: number | StartError) => void;
}

export interface AcceptorHandlers {
  onNamespace: (name: string) => void;
  onFailure: (failure: InternalErrorReport) => void;
  onDebugRecord: (acceptor: number, record: DebugRecord) => void;
  /** @returns what to call when all acceptors have switched to the publication */
  onPublication: (version: number, publication: Publication) => () => void;
  runOperation: (request: OperationRequest) => Promise<OperationResult>;
  /** An acceptor takes long to take a change over. */
  onLateActivation: (acceptor: number) => void;
}

/** Without a sign of life for so long, an acceptor is hung. */
const UNRESPONSIVE_MS = MISSED_HEARTBEATS_MAX * HEARTBEAT_MS;

/** How long all acceptors together may take to listen; a tenth of a second is usual. */
const START_TIMEOUT_MS = 30_000;

/** Of a change that is not in force after so long, and again after as long, the log tells. */
const LATE_ACTIVATION_MS = 1_000;

/**
 * What requests leave behind is dead when it is collected: a larger heap for it would only be more
 * memory, which V8 takes and gives back as it sees fit.
 */
const YOUNG_GENERATION_MB = 12;

/** How long acceptors may take to begin to drain, and to find out that they have. */
const DRAIN_GRACE_MS = 5_000;

/** How often a drain looks whether the last connection is gone. */
const DRAIN_POLL_MS = 10;

export class Acceptors {
  readonly #acceptors: Acceptor[] = [];
  readonly #control: Control;
  readonly #handlers: AcceptorHandlers;
  #heartbeatTimer: NodeJS.Timeout | undefined;
  #isClosing = false;
  #version = 0;
  /** The last publication: one after the other, since each is waited for. */
  #lastPublication: Promise<void> = Promise.resolve();
  /** Called when connections are taken. */
  #onListening = () => {};
  /** Called when an acceptor has switched. */
  #onActivation = () => {};
  /** Called when connections go to other Apps. */
  #onAppsReplaced = () => {};

  constructor(control: Control, events: AcceptorHandlers) {
    this.#control = control;
    this.#handlers = events;
  }

  /** Starts an acceptor for each row of links to the shard workers. */
  start(data: Omit<AcceptorData, 'index'>): void {
    for (const index of data.channels.keys()) this.#startAcceptor({ ...data, index });
  }

  /**
   * Has the first of them listen, when all are ready; resolves when it does. Nothing is heard of
   * acceptors before, unless they fail.
   */
  async listen(): Promise<void> {
    const stopWaiting = killProcessAfter(START_TIMEOUT_MS, () => 'the acceptors do not start');
    const [first] = this.#acceptors;
    const apps = await Promise.all(this.#acceptors.map(({ whenReady }) => whenReady));
    const listens = new Promise<void>((resolve) => {
      this.#onListening = resolve;
    });
    this.#send({ kind: 'listen', apps }, [first]);
    await listens;
    stopWaiting();
    this.#heartbeatTimer = setInterval(() => this.#checkHeartbeats(), HEARTBEAT_MS);
  }

  /**
   * Tells all acceptors, and resolves when every one of them has it in force. That takes a ms; but
   * an acceptor answers all that has come on all of its connections before it hears of a change,
   * and clients that pipeline can make that long. Late is not hung, as long as it shows that it
   * lives.
   */
  publish(publication: Publication): Promise<void> {
    this.#lastPublication = this.#lastPublication.then(() => this.#publish(publication));
    return this.#lastPublication;
  }

  #publish(publication: Publication): Promise<void> {
    const version = ++this.#version;
    const activated = this.#handlers.onPublication(version, publication);
    const isBehind = (acceptor: Acceptor) => acceptor.activeVersion !== version;
    this.#send({ kind: 'publication', version, publication });
    const late = setInterval(
      () => this.#handlers.onLateActivation(this.#acceptors.findIndex(isBehind)),
      LATE_ACTIVATION_MS,
    );
    return new Promise((resolve) => {
      this.#onActivation = () => {
        if (this.#acceptors.some(isBehind)) return;
        clearInterval(late);
        activated();
        resolve();
      };
    });
  }

  /**
   * Who connects from now on gets the certificate that is in the files now; who is connected stays
   * so. Resolves when that is so.
   * @param areFilesUnchanged whether the files are still those that were meant
   * @throws StartError where an acceptor cannot use them; then nothing has changed
   */
  async renewTls(areFilesUnchanged: () => boolean): Promise<void> {
    const renewed = this.#acceptors.map((acceptor) => {
      return new Promise<number | StartError>((resolve) => {
        acceptor.onTlsRenewal = resolve;
      });
    });
    this.#send({ kind: 'renew' });
    const made = await Promise.all(renewed);
    const apps = made.map((app) => {
      if (app instanceof StartError) throw app;
      return app;
    });
    if (!areFilesUnchanged())
      throw new StartError('the files for TLS changed while they were read');
    const handsOn = new Promise<void>((resolve) => {
      this.#onAppsReplaced = resolve;
    });
    this.#send({ kind: 'handOn', apps }, this.#acceptors.slice(0, 1));
    await handsOn;
  }

  #send(message: ToAcceptor, acceptors: readonly Acceptor[] = this.#acceptors): void {
    for (const { worker } of acceptors) worker.postMessage(message);
  }

  /** Gives each acceptor one end of a new channel from a shard worker. @returns the other ends */
  openNotificationPorts(worker: number): MessagePort[] {
    return this.#acceptors.map((acceptor) => {
      const { port1, port2 } = new MessageChannel();
      const message: ToAcceptor = { kind: 'door', worker, port: port1 };
      acceptor.worker.postMessage(message, [port1]);
      return port2;
    });
  }

  /**
   * Stops accepting, goes on answering until no connection is open, for `drainMs` at most, and then
   * ends the threads. The one that listens hears of it first: what it has handed on by then, the
   * others have when they hear of it.
   */
  async drain(drainMs: number): Promise<void> {
    this.#send({ kind: 'drain' }, this.#acceptors.slice(0, 1));
    const late = () => 'an acceptor did not end when it was told to';
    // An acceptor that hangs is found before; one that is busy comes late to its messages.
    const stopWaitingToDrain = killProcessAfter(2 * drainMs + DRAIN_GRACE_MS, late);
    for (let waited = DRAIN_POLL_MS; ; waited += DRAIN_POLL_MS) {
      await new Promise((resolve) => setTimeout(resolve, DRAIN_POLL_MS));
      // Nobody is closed to whom a connection may still be handed on.
      if (!this.#acceptors.every(({ isDraining }) => isDraining)) continue;
      if (waited >= drainMs || this.#acceptors.every(({ stats }) => stats.connections === 0)) break;
    }
    stopWaitingToDrain();
    this.#isClosing = true;
    clearInterval(this.#heartbeatTimer);
    const ended = this.#acceptors.map(({ worker }) => {
      return new Promise((resolve) => worker.once('exit', resolve));
    });
    this.#send({ kind: 'close' });
    const stopWaiting = killProcessAfter(UNRESPONSIVE_MS, late);
    await Promise.all(ended);
    stopWaiting();
  }

  #startAcceptor(data: AcceptorData): void {
    const worker = new Worker(new URL('./acceptor.js', import.meta.url), {
      workerData: data,
      resourceLimits: { maxYoungGenerationSizeMb: YOUNG_GENERATION_MB },
    });
    const stats = this.#control.acceptorStats(data.index);
    let isReady = (_apps: AppDescriptors) => {};
    const whenReady = new Promise<AppDescriptors>((resolve) => {
      isReady = resolve;
    });
    const acceptor: Acceptor = {
      ...{
        worker,
        stats,
        lastHeartbeats: 0,
        missedHeartbeats: 0,
        isDraining: false,
        activeVersion: 0,
        whenReady,
      },
      onTlsRenewal: () => {},
    };
    this.#acceptors.push(acceptor);
    worker.on('message', (message: ToMain) => {
      switch (message.kind) {
        case 'ready':
          isReady(message.apps);
          break;
        case 'listening':
          this.#onListening();
          break;
        case 'renewed':
          acceptor.onTlsRenewal(message.app);
          break;
        case 'kept':
          acceptor.onTlsRenewal(new StartError(message.sentence));
          break;
        case 'handsOn':
          this.#onAppsReplaced();
          break;
        case 'fatal':
          killProcess(message.sentence);
          break;
        case 'draining':
          acceptor.isDraining = true;
          if (data.index === 0) this.#send({ kind: 'drain' }, this.#acceptors.slice(1));
          break;
        case 'namespace':
          this.#handlers.onNamespace(message.name);
          break;
        case 'failure':
          this.#handlers.onFailure(message.failure);
          break;
        case 'debug':
          this.#handlers.onDebugRecord(data.index, message.record);
          break;
        case 'switched':
          acceptor.activeVersion = message.version;
          this.#onActivation();
          break;
        case 'operation':
          void this.#runOperation(worker, message.number, message.request);
          break;
      }
    });
    worker.on('error', (error) => killProcess(`acceptor ${data.index} failed: ${error.stack}`));
    worker.on('exit', (code) => {
      if (!this.#isClosing) killProcess(`acceptor ${data.index} ended, with code ${code}`);
    });
  }

  async #runOperation(worker: Worker, number: number, request: OperationRequest): Promise<void> {
    const result = await this.#handlers.runOperation(request);
    worker.postMessage({ kind: 'result', number, result } satisfies ToAcceptor);
  }

  #checkHeartbeats(): void {
    for (const [index, acceptor] of this.#acceptors.entries()) {
      const signs = acceptor.stats.heartbeats;
      acceptor.missedHeartbeats =
        signs === acceptor.lastHeartbeats ? acceptor.missedHeartbeats + 1 : 0;
      acceptor.lastHeartbeats = signs;
      if (acceptor.missedHeartbeats >= MISSED_HEARTBEATS_MAX) {
        killProcess(`acceptor ${index} is unresponsive: no heartbeat for ${UNRESPONSIVE_MS} ms`);
      }
    }
  }
}

/**
 * Ends the process after a while, counted in looks of this thread.
 * @returns what has to be called before
 */
function killProcessAfter(ms: number, sentence: () => string): () => void {
  let looks = ms / HEARTBEAT_MS;
  const look = setInterval(() => {
    if (--looks < 0) killProcess(sentence());
  }, HEARTBEAT_MS);
  return () => clearInterval(look);
}
