/**
 * The acceptors as the main thread sees them: starts them, watches that their loops turn, passes on
 * what all must know, and drains them. One that dies, fails or hangs ends the process at once.
 *
 * Signs of life are counted in looks of this thread, not in time: a process that was stopped and
 * goes on has missed none.
 */

import { MessageChannel, type MessagePort, Worker } from 'node:worker_threads';
import type { OperationRequest, OperationResult } from '../api/operations.ts';
import type { Control } from '../control.ts';
import { StartError } from '../errors.ts';
import type { AppDescriptors } from '../http/apps.ts';
import type {
  AcceptorData,
  DebugRecord,
  Publication,
  ToAcceptor,
  ToMain,
} from '../http/messages.ts';
import type { Failure } from '../http/reply.ts';
import type { AcceptorLane } from '../lanes.ts';
import { HEARTBEAT_MS, HEARTBEATS_MISSED } from '../limits.ts';
import { dieAtOnce } from './fatal.ts';

interface Acceptor {
  worker: Worker;
  lane: AcceptorLane;
  signs: number;
  missed: number;
  draining: boolean;
  /** The last publication that it has in force. */
  version: number;
  /** Its Apps, for the one that listens. */
  ready: Promise<AppDescriptors>;
  /** Called with an App that it was told to make, or with why it could not. */
  renewed: (app: number | StartError) => void;
}

export interface AcceptorEvents {
  namespace: (name: string) => void;
  failure: (failure: Failure) => void;
  debug: (acceptor: number, record: DebugRecord) => void;
  /** @returns what to call when all acceptors have switched to the publication */
  publication: (version: number, publication: Publication) => () => void;
  operation: (request: OperationRequest) => Promise<OperationResult>;
  /** An acceptor takes long to take a change over. */
  late: (acceptor: number) => void;
}

/** Without a sign of life for so long, an acceptor is hung. */
const HUNG_MS = HEARTBEATS_MISSED * HEARTBEAT_MS;

/** How long all acceptors together may take to listen; a tenth of a second is usual. */
const START_MS = 30_000;

/** Of a change that is not in force after so long, and again after as long, the log tells. */
const LATE_MS = 1_000;

/**
 * What requests leave behind is dead when it is collected: a larger heap for it would only be more
 * memory, which V8 takes and gives back as it sees fit.
 */
const YOUNG_MB = 12;

/** How long acceptors may take to begin to drain, and to find out that they have. */
const DRAIN_LATE_MS = 5_000;

/** How often a drain looks whether the last connection is gone. */
const DRAIN_LOOK_MS = 10;

export class Acceptors {
  readonly #acceptors: Acceptor[] = [];
  readonly #control: Control;
  readonly #events: AcceptorEvents;
  #watch: NodeJS.Timeout | undefined;
  #closing = false;
  #version = 0;
  /** The last publication: one after the other, since each is waited for. */
  #published: Promise<void> = Promise.resolve();
  /** Called when connections are taken. */
  #listens = () => {};
  /** Called when an acceptor has switched. */
  #switched = () => {};
  /** Called when connections go to other Apps. */
  #handsOn = () => {};

  constructor(control: Control, events: AcceptorEvents) {
    this.#control = control;
    this.#events = events;
  }

  /** Starts an acceptor for each row of links to the shard workers. */
  start(data: Omit<AcceptorData, 'index'>): void {
    for (const index of data.links.keys()) this.#startOne({ ...data, index });
  }

  /**
   * Has the first of them listen, when all are ready; resolves when it does. Nothing is heard of
   * acceptors before, unless they fail.
   */
  async listen(): Promise<void> {
    const stopWaiting = dieAfter(START_MS, () => 'the acceptors do not start');
    const [first] = this.#acceptors;
    const apps = await Promise.all(this.#acceptors.map(({ ready }) => ready));
    const listens = new Promise<void>((resolve) => {
      this.#listens = resolve;
    });
    this.#tell({ kind: 'listen', apps }, [first]);
    await listens;
    stopWaiting();
    this.#watch = setInterval(() => this.#look(), HEARTBEAT_MS);
  }

  /**
   * Tells all acceptors, and resolves when every one of them has it in force. That takes a ms; but
   * an acceptor answers all that has come on all of its connections before it hears of a change,
   * and clients that pipeline can make that long. Late is not hung, as long as it shows that it
   * lives.
   */
  publish(publication: Publication): Promise<void> {
    this.#published = this.#published.then(() => this.#publish(publication));
    return this.#published;
  }

  #publish(publication: Publication): Promise<void> {
    const version = ++this.#version;
    const activated = this.#events.publication(version, publication);
    const isBehind = (acceptor: Acceptor) => acceptor.version !== version;
    this.#tell({ kind: 'publication', version, publication });
    const late = setInterval(() => this.#events.late(this.#acceptors.findIndex(isBehind)), LATE_MS);
    return new Promise((resolve) => {
      this.#switched = () => {
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
   * @param unchanged whether the files are still those that were meant
   * @throws StartError where an acceptor cannot use them; then nothing has changed
   */
  async renewTls(unchanged: () => boolean): Promise<void> {
    const renewed = this.#acceptors.map((acceptor) => {
      return new Promise<number | StartError>((resolve) => {
        acceptor.renewed = resolve;
      });
    });
    this.#tell({ kind: 'renew' });
    const made = await Promise.all(renewed);
    const apps = made.map((app) => {
      if (app instanceof StartError) throw app;
      return app;
    });
    if (!unchanged()) throw new StartError('the files for TLS changed while they were read');
    const handsOn = new Promise<void>((resolve) => {
      this.#handsOn = resolve;
    });
    this.#tell({ kind: 'handOn', apps }, this.#acceptors.slice(0, 1));
    await handsOn;
  }

  #tell(message: ToAcceptor, acceptors: readonly Acceptor[] = this.#acceptors): void {
    for (const { worker } of acceptors) worker.postMessage(message);
  }

  /** Gives each acceptor one end of a new channel from a shard worker. @returns the other ends */
  doors(worker: number): MessagePort[] {
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
    this.#tell({ kind: 'drain' }, this.#acceptors.slice(0, 1));
    const late = () => 'an acceptor did not end when it was told to';
    // An acceptor that hangs is found before; one that is busy comes late to its messages.
    const stopWaitingToDrain = dieAfter(2 * drainMs + DRAIN_LATE_MS, late);
    for (let waited = DRAIN_LOOK_MS; ; waited += DRAIN_LOOK_MS) {
      await new Promise((resolve) => setTimeout(resolve, DRAIN_LOOK_MS));
      // Nobody is closed to whom a connection may still be handed on.
      if (!this.#acceptors.every(({ draining }) => draining)) continue;
      if (waited >= drainMs || this.#acceptors.every(({ lane }) => lane.connections === 0)) break;
    }
    stopWaitingToDrain();
    this.#closing = true;
    clearInterval(this.#watch);
    const ended = this.#acceptors.map(({ worker }) => {
      return new Promise((resolve) => worker.once('exit', resolve));
    });
    this.#tell({ kind: 'close' });
    const stopWaiting = dieAfter(HUNG_MS, late);
    await Promise.all(ended);
    stopWaiting();
  }

  #startOne(data: AcceptorData): void {
    const worker = new Worker(new URL('./acceptor.js', import.meta.url), {
      workerData: data,
      resourceLimits: { maxYoungGenerationSizeMb: YOUNG_MB },
    });
    const lane = this.#control.acceptorLane(data.index);
    let isReady = (_apps: AppDescriptors) => {};
    const ready = new Promise<AppDescriptors>((resolve) => {
      isReady = resolve;
    });
    const acceptor: Acceptor = {
      ...{ worker, lane, signs: 0, missed: 0, draining: false, version: 0, ready },
      renewed: () => {},
    };
    this.#acceptors.push(acceptor);
    worker.on('message', (message: ToMain) => {
      switch (message.kind) {
        case 'ready':
          isReady(message.apps);
          break;
        case 'listening':
          this.#listens();
          break;
        case 'renewed':
          acceptor.renewed(message.app);
          break;
        case 'kept':
          acceptor.renewed(new StartError(message.sentence));
          break;
        case 'handsOn':
          this.#handsOn();
          break;
        case 'fatal':
          dieAtOnce(message.sentence);
          break;
        case 'draining':
          acceptor.draining = true;
          if (data.index === 0) this.#tell({ kind: 'drain' }, this.#acceptors.slice(1));
          break;
        case 'namespace':
          this.#events.namespace(message.name);
          break;
        case 'failure':
          this.#events.failure(message.failure);
          break;
        case 'debug':
          this.#events.debug(data.index, message.record);
          break;
        case 'switched':
          acceptor.version = message.version;
          this.#switched();
          break;
        case 'operation':
          void this.#operate(worker, message.number, message.request);
          break;
      }
    });
    worker.on('error', (error) => dieAtOnce(`acceptor ${data.index} failed: ${error.stack}`));
    worker.on('exit', (code) => {
      if (!this.#closing) dieAtOnce(`acceptor ${data.index} ended, with code ${code}`);
    });
  }

  async #operate(worker: Worker, number: number, request: OperationRequest): Promise<void> {
    const result = await this.#events.operation(request);
    worker.postMessage({ kind: 'result', number, result } satisfies ToAcceptor);
  }

  #look(): void {
    for (const [index, acceptor] of this.#acceptors.entries()) {
      const signs = acceptor.lane.signsOfLife;
      acceptor.missed = signs === acceptor.signs ? acceptor.missed + 1 : 0;
      acceptor.signs = signs;
      if (acceptor.missed >= HEARTBEATS_MISSED) {
        dieAtOnce(`acceptor ${index} hangs: no sign of life for ${HUNG_MS} ms`);
      }
    }
  }
}

/**
 * Ends the process after a while, counted in looks of this thread.
 * @returns what has to be called before
 */
function dieAfter(ms: number, sentence: () => string): () => void {
  let looks = ms / HEARTBEAT_MS;
  const look = setInterval(() => {
    if (--looks < 0) dieAtOnce(sentence());
  }, HEARTBEAT_MS);
  return () => clearInterval(look);
}
