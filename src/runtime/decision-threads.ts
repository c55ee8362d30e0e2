/**
 * The threads that decide checks, as the main thread sees them, whatever protocol they serve: takes
 * their messages, watches their heartbeats, sends them publications, and drains them. A thread that
 * fails, ends or is unresponsive ends the process at once. One that is late because it has no CPU
 * does not: see `heartbeat-watch.ts`.
 */

import { MessageChannel, type MessagePort, Worker } from 'node:worker_threads';
import type { SketchAnnouncement } from '../analytics/recorder.ts';
import { DISK_UNRESPONSIVE_MS, HEARTBEAT_MS } from '../core/constants.ts';
import { killProcess } from '../core/fatal.ts';
import type {
  DecisionThreadData,
  FromDecisionThread,
  InternalErrorReport,
  ToDecisionThread,
} from '../decision-thread/messages.ts';
import type { Publication } from '../registry/publication.ts';
import type { Control } from '../shared-memory/control.ts';
import {
  afterProcessMs,
  describeSilence,
  HeartbeatWatch,
  PollTimes,
} from '../shared-memory/heartbeat-watch.ts';
import type { AcceptorStats } from '../shared-memory/stats.ts';

/** One thread, for the code of its protocol. */
export interface SupervisedThread {
  readonly thread: Worker;
  /** Called when it can serve. */
  setReady(): void;
}

interface DecisionThread extends SupervisedThread {
  /** For messages: `acceptor 0`. */
  name: string;
  stats: AcceptorStats;
  watch: HeartbeatWatch;
  isReady: boolean;
  isDraining: boolean;
  /** The version of the publication that is active on it. */
  activeVersion: number;
  whenListening: Promise<void>;
  setListening: () => void;
}

/** Handlers of what every thread sends, and of publications, once the threads listen. */
export interface DecisionThreadHandlers {
  onNamespace: (name: string) => void;
  onSketches: (announcement: SketchAnnouncement) => void;
  onFailure: (failure: InternalErrorReport) => void;
  /** @returns what to call when the publication is active on all threads */
  onPublication: (version: number, publication: Publication) => () => void;
  /** @param thread its name */
  onLateActivation: (thread: string) => void;
}

/**
 * The time in which all threads must be ready and listen; 100 ms are usual. As for all times here
 * that end the process, only time in which its threads could run counts.
 */
const START_TIMEOUT_MS = 30_000;

/** The interval at which a publication that is not active yet is reported. */
const LATE_ACTIVATION_MS = 1_000;

/**
 * The young generation of a thread's heap. Objects of a request are dead when V8 collects them, so
 * a larger young generation would only cost memory.
 */
const YOUNG_GENERATION_MB = 12;

/** The time that threads get beyond the drain time to receive and answer messages. */
const DRAIN_GRACE_MS = 5_000;

/** The interval at which a drain polls for open connections. */
const DRAIN_POLL_MS = 10;

export class DecisionThreads {
  /** By index. The first is the acceptor that listens. */
  readonly #threads: DecisionThread[] = [];
  readonly #control: Control;
  /** A thread without a heartbeat in this time, in which it could run, is unresponsive. */
  readonly #unresponsiveMs: number;
  /** Set by `waitForStart`. Before, threads send only names of namespaces without an id. */
  #handlers!: DecisionThreadHandlers;
  readonly #earlyNamespaces: string[] = [];
  #heartbeatTimer: NodeJS.Timeout | undefined;
  #isClosing = false;
  #version = 0;
  /** Publications are sent one after the other, each when the one before is active. */
  #lastPublication: Promise<void> = Promise.resolve();
  /** Called when a publication has become active on a thread. */
  #onActivation = () => {};

  constructor(control: Control, unresponsiveMs: number) {
    this.#control = control;
    this.#unresponsiveMs = unresponsiveMs;
  }

  /**
   * Starts the thread of an index.
   * @param file the bundle of its entry
   * @param receive called with the messages of its own protocol
   */
  start<Message extends { kind: string }>(
    name: string,
    file: string,
    data: DecisionThreadData,
    receive: (message: Exclude<Message, FromDecisionThread>) => void,
  ): SupervisedThread {
    const thread = new Worker(new URL(file, import.meta.url), {
      workerData: data,
      resourceLimits: { maxYoungGenerationSizeMb: YOUNG_GENERATION_MB },
    });
    let setListening = () => {};
    const whenListening = new Promise<void>((resolve) => {
      setListening = resolve;
    });
    const started: DecisionThread = {
      name,
      thread,
      stats: this.#control.acceptorStats(data.index),
      watch: new HeartbeatWatch(),
      isReady: false,
      isDraining: false,
      activeVersion: 0,
      whenListening,
      setListening,
      setReady: () => {
        started.isReady = true;
      },
    };
    this.#threads[data.index] = started;
    thread.on('message', (message: FromDecisionThread | Exclude<Message, FromDecisionThread>) => {
      if (!this.#receive(started, message as FromDecisionThread)) {
        receive(message as Exclude<Message, FromDecisionThread>);
      }
    });
    thread.on('error', (error) => killProcess(`${name} failed: ${error.stack}`));
    thread.on('exit', (code) => {
      if (!this.#isClosing) killProcess(`${name} ended, with code ${code}`);
    });
    return started;
  }

  /**
   * Takes the handlers, has the threads listen, and begins to watch their heartbeats. Resolves when
   * all threads that listen do.
   * @param listen sends the messages to listen when all threads are ready
   */
  async waitForStart(
    handlers: DecisionThreadHandlers,
    listen: () => Promise<readonly SupervisedThread[]>,
  ): Promise<void> {
    this.#handlers = handlers;
    for (const name of this.#earlyNamespaces) handlers.onNamespace(name);
    const stopWaiting = killProcessAfter(START_TIMEOUT_MS, () => {
      const late = this.#namesOf(({ isReady }) => !isReady);
      return late === '' ? 'not all threads listened in time' : `${late} did not start in time`;
    });
    const listening = new Set(await listen());
    const threads = this.#threads.filter((thread) => listening.has(thread));
    await Promise.all(threads.map(({ whenListening }) => whenListening));
    stopWaiting();
    const times = new PollTimes(HEARTBEAT_MS);
    this.#heartbeatTimer = setInterval(() => this.#checkHeartbeats(times), HEARTBEAT_MS);
  }

  /**
   * Sends a publication to all threads. Resolves when it is active on each of them, after about
   * 1 ms. A thread answers what has arrived on all of its connections before it receives a message.
   * Without CPU time that can be long; such a thread is late, but not unresponsive, since answered
   * requests count as heartbeats.
   */
  publish(publication: Publication): Promise<void> {
    this.#lastPublication = this.#lastPublication.then(() => this.#publish(publication));
    return this.#lastPublication;
  }

  #publish(publication: Publication): Promise<void> {
    const version = ++this.#version;
    const onActive = this.#handlers.onPublication(version, publication);
    const isBehind = (thread: DecisionThread) => thread.activeVersion !== version;
    this.#send({ kind: 'publication', version, publication });
    const lateTimer = setInterval(
      () => this.#handlers.onLateActivation(this.#namesOf(isBehind)),
      LATE_ACTIVATION_MS,
    );
    return new Promise((resolve) => {
      this.#onActivation = () => {
        if (this.#threads.some(isBehind)) return;
        clearInterval(lateTimer);
        onActive();
        resolve();
      };
    });
  }

  /**
   * Sends each thread the receiving end of a new message channel from a shard worker.
   * @returns the sending ends, by thread
   */
  openNotificationPorts(worker: number): MessagePort[] {
    return this.#threads.map(({ thread }) => {
      const { port1, port2 } = new MessageChannel();
      const message: ToDecisionThread = { kind: 'notificationPort', worker, port: port1 };
      thread.postMessage(message, [port1]);
      return port2;
    });
  }

  /**
   * Stops accepting connections, answers requests until no connection is open, for `drainMs` at
   * most, and then ends the threads. The listening acceptor drains first: so the others receive
   * the last connections that it assigned to them before they drain.
   */
  async drain(drainMs: number): Promise<void> {
    this.#send({ kind: 'drain' }, this.#threads.slice(0, 1));
    // The heartbeats find an unresponsive thread earlier; a busy one reads messages late.
    const stopWaitingToDrain = killProcessAfter(2 * drainMs + DRAIN_GRACE_MS, () => {
      return `${this.#namesOf(({ isDraining }) => !isDraining)} did not begin to drain in time`;
    });
    for (let waited = DRAIN_POLL_MS; ; waited += DRAIN_POLL_MS) {
      await new Promise((resolve) => setTimeout(resolve, DRAIN_POLL_MS));
      // A thread that does not drain yet may still receive a connection.
      if (!this.#threads.every(({ isDraining }) => isDraining)) continue;
      if (waited >= drainMs || this.#threads.every(({ stats }) => stats.connections === 0)) break;
    }
    stopWaitingToDrain();
    this.#isClosing = true;
    clearInterval(this.#heartbeatTimer);
    const ended = this.#threads.map(({ thread }) => {
      return new Promise((resolve) => thread.once('exit', resolve));
    });
    this.#send({ kind: 'close' });
    const stopWaiting = killProcessAfter(this.#unresponsiveMs, () => {
      // The id of a thread that has ended is -1.
      return `${this.#namesOf(({ thread }) => thread.threadId > 0)} did not end in time`;
    });
    await Promise.all(ended);
    stopWaiting();
  }

  /** @returns whether it was a message that every thread may send */
  #receive(from: DecisionThread, message: FromDecisionThread): boolean {
    switch (message.kind) {
      case 'listening':
        from.setListening();
        return true;
      case 'fatal':
        killProcess(message.reason);
        return true;
      case 'draining':
        from.isDraining = true;
        if (from === this.#threads[0]) this.#send({ kind: 'drain' }, this.#threads.slice(1));
        return true;
      case 'namespace':
        if (this.#handlers === undefined) this.#earlyNamespaces.push(message.name);
        else this.#handlers.onNamespace(message.name);
        return true;
      case 'sketches':
        this.#handlers.onSketches(message.announcement);
        return true;
      case 'internalError':
        this.#handlers.onFailure(message.report);
        return true;
      case 'activated':
        from.activeVersion = message.version;
        this.#onActivation();
        return true;
      default:
        return false;
    }
  }

  #send(message: ToDecisionThread, threads: readonly SupervisedThread[] = this.#threads): void {
    for (const { thread } of threads) thread.postMessage(message);
  }

  /** "acceptor 0, acceptor 2", or '' where no thread meets the condition. */
  #namesOf(condition: (thread: DecisionThread) => boolean): string {
    return this.#threads
      .filter(condition)
      .map(({ name }) => name)
      .join(', ');
  }

  #checkHeartbeats(times: PollTimes): void {
    times.poll();
    for (const { name, stats, watch } of this.#threads) {
      // Read before the heartbeats: a thread that is done with the disk shows one first.
      const waitsForDisk = stats.isWaitingForDisk;
      watch.observe(times, stats.heartbeats, stats.kernelThreadId);
      const missedMaxMs = waitsForDisk
        ? Math.max(DISK_UNRESPONSIVE_MS, this.#unresponsiveMs)
        : this.#unresponsiveMs;
      if (watch.missedMs < missedMaxMs) continue;
      killProcess(`${name} is unresponsive: ${describeSilence(watch.silence)}`);
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
