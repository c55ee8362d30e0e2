/**
 * The parts of a thread that decides checks, the same for HTTP and gRPC: its engine, the
 * namespaces and overrides that it knows, the records of its decisions, and its heartbeat.
 */

import { IdentifierRecorder } from '../analytics/recorder.ts';
import { HEARTBEAT_MS, RECENT_PERIOD_MS } from '../core/constants.ts';
import { Hasher } from '../core/hash.ts';
import type { Namespace } from '../core/namespace.ts';
import type { Engine } from '../engine/engine.ts';
import { EventRecorder } from '../events/event-recorder.ts';
import { ActiveOverrides } from '../overrides/active.ts';
import { RecentDecisionWriter } from '../recent-decisions/writer.ts';
import { KnownNamespaces } from '../registry/known-namespaces.ts';
import type { Publication } from '../registry/publication.ts';
import type { Clock } from '../shared-memory/clock.ts';
import type { Control } from '../shared-memory/control.ts';
import type { AcceptorStats } from '../shared-memory/stats.ts';
import { kernelThreadId } from '../shared-memory/thread-times.ts';
import { createEngine } from './create-engine.ts';
import { DecisionRecorder } from './decision-recorder.ts';
import type { DecisionThreadData, FromDecisionThread } from './messages.ts';

/** The parts of the shared memory that a thread needs before it can have an engine. */
interface ThreadMemory {
  control: Control;
  stats: AcceptorStats;
  clock: Clock;
}

export class DecisionThread {
  readonly stats: AcceptorStats;
  readonly clock: Clock;
  readonly engine: Engine;
  readonly hasher: Hasher;
  readonly knownNamespaces: KnownNamespaces;
  readonly overrides: ActiveOverrides;
  readonly recorder: DecisionRecorder;
  readonly #identifiers: IdentifierRecorder;
  #heartbeatTimer: NodeJS.Timeout | undefined;

  /**
   * @param onSteps called with the steps of each search for overrides
   * @param send sends a message to the main thread
   */
  constructor(
    data: DecisionThreadData,
    { control, stats, clock }: ThreadMemory,
    onSteps: (count: number) => void,
    send: (message: FromDecisionThread) => void,
  ) {
    const { index, hashKey, events, recentDecisions } = data;
    this.stats = stats;
    this.clock = clock;
    this.engine = createEngine(data.engine, index, control, clock);
    const hasher = new Hasher(hashKey);
    this.hasher = hasher;
    this.knownNamespaces = new KnownNamespaces(
      (key) => hasher.namespace(key),
      (row) => stats.namespaceRow(row),
      (name) => send({ kind: 'namespace', name }),
    );
    this.overrides = new ActiveOverrides(onSteps);
    this.#identifiers = new IdentifierRecorder(control, (announcement) => {
      send({ kind: 'sketches', announcement });
    });
    this.recorder = new DecisionRecorder(this.#identifiers, {
      events: events && new EventRecorder(events, index, clock, stats),
      recent: recentDecisions && new RecentDecisionWriter(recentDecisions[index], index, clock),
      overrides: this.overrides,
    });
  }

  /** Begins the heartbeat. */
  start(): void {
    this.stats.setKernelThreadId(kernelThreadId());
    let heartbeats = 0;
    this.#heartbeatTimer = setInterval(() => {
      this.stats.heartbeat();
      if (++heartbeats % (RECENT_PERIOD_MS / HEARTBEAT_MS) === 0) this.recorder.beginPeriod();
    }, HEARTBEAT_MS);
  }

  stop(): void {
    clearInterval(this.#heartbeatTimer);
  }

  /**
   * Activates namespaces and overrides. @returns the deleted namespaces that this thread knew
   */
  activate(publication: Publication): readonly Namespace[] {
    const deleted = this.knownNamespaces.apply(publication);
    for (const namespace of deleted) this.#identifiers.forget(namespace);
    this.overrides.activate(publication);
    return deleted;
  }
}
