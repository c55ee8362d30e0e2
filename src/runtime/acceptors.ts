/**
 * The acceptor threads, as the main thread sees them: starts them, watches their heartbeats, sends
 * them publications, and drains them. An acceptor that fails, ends or is unresponsive ends the
 * process at once. One that is late because it has no CPU does not: see `heartbeat-watch.ts`.
 */

import { MessageChannel, type MessagePort, Worker } from 'node:worker_threads';
import type { SketchAnnouncement } from '../analytics/recorder.ts';
import type { UnknownField } from '../api/common/unknown-fields.ts';
import type {
  CounterOperationRequest,
  CounterOperationResult,
  OperationRequest,
  OperationResult,
} from '../api/operations/messages.ts';
import { HEARTBEAT_MS } from '../core/constants.ts';
import { StartError } from '../core/errors.ts';
import { killProcess } from '../core/fatal.ts';
import type { Publication } from '../registry/publication.ts';
import type { AppDescriptors } from '../server/apps.ts';
import type { AcceptorData, DebugRecord, ToAcceptor, ToMain } from '../server/messages.ts';
import type { InternalErrorReport } from '../server/responder.ts';
import type { Control } from '../shared-memory/control.ts';
import {
  afterProcessMs,
  describeSilence,
  HeartbeatWatch,
  PollTimes,
} from '../shared-memory/heartbeat-watch.ts';
import type { AcceptorStats } from '../shared-memory/stats.ts';
import { CounterOperations } from './counter-operations.ts';

interface Acceptor {
  thread: Worker;
  stats: AcceptorStats;
  watch: HeartbeatWatch;
  isReady: boolean;
  isDraining: boolean;
  /** The version of the publication that is active on it. */
  activeVersion: number;
  /** Resolves with its Apps, which the listening acceptor needs. */
  whenReady: Promise<AppDescriptors>;
  /** Called with the App that it has made for a new certificate, or with its error. */
  onTlsRenewal: (app: number | StartError) => void;
}

/** Handlers of acceptors' messages and of publications, once the acceptors listen. */
export interface AcceptorHandlers {
  onNamespace: (name: string) => void;
  onSketches: (announcement: SketchAnnouncement) => void;
  onFailure: (failure: InternalErrorReport) => void;
  onUnknownField: (field: UnknownField) => void;
  onDebugRecord: (acceptor: number, record: DebugRecord) => void;
  /** @returns what to call when the publication is active on all acceptors */
  onPublication: (version: number, publication: Publication) => () => void;
  runOperation: (request: OperationRequest) => Promise<OperationResult>;
  onLateActivation: (acceptor: number) => void;
}

/**
 * The time in which all acceptors must be ready and listen; 100 ms are usual. As for all times
 * here that end the process, only time in which its threads could run counts.
 */
const START_TIMEOUT_MS = 30_000;

/** The interval at which a publication that is not active yet is reported. */
const LATE_ACTIVATION_MS = 1_000;

/**
 * The young generation of an acceptor's heap. Objects of a request are dead when V8 collects them,
 * so a larger young generation would only cost memory.
 */
const YOUNG_GENERATION_MB = 12;

/** The time that acceptors get beyond the drain time to receive and answer messages. */
const DRAIN_GRACE_MS = 5_000;

/** The interval at which a drain polls for open connections. */
const DRAIN_POLL_MS = 10;

export class Acceptors {
  readonly #acceptors: Acceptor[] = [];
  readonly #control: Control;
  /** An acceptor without a heartbeat in this time, in which it could run, is unresponsive. */
  readonly #unresponsiveMs: number;
  /** Set by `listen`. Before, acceptors send only names of namespaces that have no id yet. */
  #handlers!: AcceptorHandlers;
  readonly #earlyNamespaces: string[] = [];
  readonly #counterOperations: CounterOperations;
  #heartbeatTimer: NodeJS.Timeout | undefined;
  #isClosing = false;
  #version = 0;
  /** Publications are sent one after the other, each when the one before is active. */
  #lastPublication: Promise<void> = Promise.resolve();
  /** Called when the first acceptor listens. */
  #onListening = () => {};
  /** Called when a publication has become active on an acceptor. */
  #onActivation = () => {};
  /** Called when new connections go to the new Apps. */
  #onAppsReplaced = () => {};

  constructor(control: Control, unresponsiveMs: number) {
    this.#control = control;
    this.#unresponsiveMs = unresponsiveMs;
    this.#counterOperations = new CounterOperations(
      control.acceptorCount,
      (index, number, request) => {
        this.#send({ kind: 'counterOperation', number, request }, [this.#acceptors[index]]);
      },
    );
  }

  /** Starts all acceptors. */
  start(data: Omit<AcceptorData, 'index'>): void {
    const { acceptorCount } = this.#control;
    for (let index = 0; index < acceptorCount; index++) this.#startAcceptor({ ...data, index });
  }

  /** Lets the first acceptor listen when all are ready. Resolves when it does. */
  async listen(handlers: AcceptorHandlers): Promise<void> {
    this.#handlers = handlers;
    for (const name of this.#earlyNamespaces) handlers.onNamespace(name);
    const stopWaiting = killProcessAfter(START_TIMEOUT_MS, () => {
      const late = this.#indexesOf(({ isReady }) => !isReady);
      return late === '' ? 'acceptor 0 did not listen in time' : `${late} did not start in time`;
    });
    const [first] = this.#acceptors;
    const apps = await Promise.all(this.#acceptors.map(({ whenReady }) => whenReady));
    const listening = new Promise<void>((resolve) => {
      this.#onListening = resolve;
    });
    this.#send({ kind: 'listen', apps }, [first]);
    await listening;
    stopWaiting();
    const times = new PollTimes(HEARTBEAT_MS);
    this.#heartbeatTimer = setInterval(() => this.#checkHeartbeats(times), HEARTBEAT_MS);
  }

  /**
   * Sends a publication to all acceptors. Resolves when it is active on each of them, after about
   * 1 ms. An acceptor answers what has arrived on all of its connections before it receives a
   * message. Without CPU time that can be long; such an acceptor is late, but not unresponsive,
   * since answered requests count as heartbeats.
   */
  publish(publication: Publication): Promise<void> {
    this.#lastPublication = this.#lastPublication.then(() => this.#publish(publication));
    return this.#lastPublication;
  }

  #publish(publication: Publication): Promise<void> {
    const version = ++this.#version;
    const onActive = this.#handlers.onPublication(version, publication);
    const isBehind = (acceptor: Acceptor) => acceptor.activeVersion !== version;
    this.#send({ kind: 'publication', version, publication });
    const lateTimer = setInterval(
      () => this.#handlers.onLateActivation(this.#acceptors.findIndex(isBehind)),
      LATE_ACTIVATION_MS,
    );
    return new Promise((resolve) => {
      this.#onActivation = () => {
        if (this.#acceptors.some(isBehind)) return;
        clearInterval(lateTimer);
        onActive();
        resolve();
      };
    });
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
    for (const { thread } of acceptors) thread.postMessage(message);
  }

  /**
   * Sends each acceptor the receiving end of a new message channel from a shard worker.
   * @returns the sending ends, by acceptor
   */
  openNotificationPorts(worker: number): MessagePort[] {
    return this.#acceptors.map((acceptor) => {
      const { port1, port2 } = new MessageChannel();
      const message: ToAcceptor = { kind: 'notificationPort', worker, port: port1 };
      acceptor.thread.postMessage(message, [port1]);
      return port2;
    });
  }

  /**
   * Stops accepting connections, answers requests until no connection is open, for `drainMs` at
   * most, and then ends the threads. The listening acceptor drains first: so the others receive
   * the last connections that it assigned to them before they drain.
   */
  async drain(drainMs: number): Promise<void> {
    this.#send({ kind: 'drain' }, this.#acceptors.slice(0, 1));
    // The heartbeats find an unresponsive acceptor earlier; a busy one reads messages late.
    const stopWaitingToDrain = killProcessAfter(2 * drainMs + DRAIN_GRACE_MS, () => {
      return `${this.#indexesOf(({ isDraining }) => !isDraining)} did not begin to drain in time`;
    });
    for (let waited = DRAIN_POLL_MS; ; waited += DRAIN_POLL_MS) {
      await new Promise((resolve) => setTimeout(resolve, DRAIN_POLL_MS));
      // An acceptor that does not drain yet may still receive a connection.
      if (!this.#acceptors.every(({ isDraining }) => isDraining)) continue;
      if (waited >= drainMs || this.#acceptors.every(({ stats }) => stats.connections === 0)) break;
    }
    stopWaitingToDrain();
    this.#isClosing = true;
    clearInterval(this.#heartbeatTimer);
    const ended = this.#acceptors.map(({ thread }) => {
      return new Promise((resolve) => thread.once('exit', resolve));
    });
    this.#send({ kind: 'close' });
    const stopWaiting = killProcessAfter(this.#unresponsiveMs, () => {
      // The id of a thread that has ended is -1.
      return `${this.#indexesOf(({ thread }) => thread.threadId > 0)} did not end in time`;
    });
    await Promise.all(ended);
    stopWaiting();
  }

  #startAcceptor(data: AcceptorData): void {
    const thread = new Worker(new URL('./acceptor.js', import.meta.url), {
      workerData: data,
      resourceLimits: { maxYoungGenerationSizeMb: YOUNG_GENERATION_MB },
    });
    const stats = this.#control.acceptorStats(data.index);
    let resolveReady = (_apps: AppDescriptors) => {};
    const whenReady = new Promise<AppDescriptors>((resolve) => {
      resolveReady = resolve;
    });
    const acceptor: Acceptor = {
      thread,
      stats,
      watch: new HeartbeatWatch(),
      isReady: false,
      isDraining: false,
      activeVersion: 0,
      whenReady,
      onTlsRenewal: () => {},
    };
    this.#acceptors.push(acceptor);
    thread.on('message', (message: ToMain) => {
      switch (message.kind) {
        case 'ready':
          acceptor.isReady = true;
          resolveReady(message.apps);
          break;
        case 'listening':
          this.#onListening();
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
        case 'fatal':
          killProcess(message.reason);
          break;
        case 'draining':
          acceptor.isDraining = true;
          if (data.index === 0) this.#send({ kind: 'drain' }, this.#acceptors.slice(1));
          break;
        case 'namespace':
          if (this.#handlers === undefined) this.#earlyNamespaces.push(message.name);
          else this.#handlers.onNamespace(message.name);
          break;
        case 'sketches':
          this.#handlers.onSketches(message.announcement);
          break;
        case 'internalError':
          this.#handlers.onFailure(message.report);
          break;
        case 'debug':
          this.#handlers.onDebugRecord(data.index, message.record);
          break;
        case 'unknownField':
          this.#handlers.onUnknownField(message.field);
          break;
        case 'activated':
          acceptor.activeVersion = message.version;
          this.#onActivation();
          break;
        case 'operation':
          void this.#runOperation(thread, message.number, message.request);
          break;
        case 'counterResult':
          this.#counterOperations.complete(message.number, message.result);
          break;
      }
    });
    thread.on('error', (error) => killProcess(`acceptor ${data.index} failed: ${error.stack}`));
    thread.on('exit', (code) => {
      if (!this.#isClosing) killProcess(`acceptor ${data.index} ended, with code ${code}`);
    });
  }

  async #runOperation(thread: Worker, number: number, request: OperationRequest): Promise<void> {
    const result = await this.#handlers.runOperation(request);
    thread.postMessage({ kind: 'result', number, result } satisfies ToAcceptor);
  }

  /** "acceptor 0, 2", or '' where no acceptor meets the condition. */
  #indexesOf(condition: (acceptor: Acceptor) => boolean): string {
    const indexes = [...this.#acceptors.keys()].filter((index) =>
      condition(this.#acceptors[index]),
    );
    return indexes.length === 0 ? '' : `acceptor ${indexes.join(', ')}`;
  }

  #checkHeartbeats(times: PollTimes): void {
    times.poll();
    for (const [index, { stats, watch }] of this.#acceptors.entries()) {
      watch.observe(times, stats.heartbeats, stats.kernelThreadId);
      if (watch.missedMs < this.#unresponsiveMs) continue;
      killProcess(`acceptor ${index} is unresponsive: ${describeSilence(watch.silence)}`);
    }
  }
}

/**
 * Ends the process after a time in which its threads could run.
 * @returns what to call before that time is over
 */
function killProcessAfter(ms: number, sentence: () => string): () => void {
  return afterProcessMs(ms, HEARTBEAT_MS, () => killProcess(sentence()));
}
