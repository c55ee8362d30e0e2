/**
 * The interface of all engines. An engine decides checks, counts what they use, and corrects and
 * shows its counters. It knows nothing of HTTP, keys, overrides and the registry; a transport knows
 * nothing below this file. A call is answered by its return value, or in a later turn of the loop:
 * `undefined` announces a call of the completion. The check of a client that has disconnected by
 * then is counted all the same; its transport drops the response.
 *
 * An engine counts what happens in its tables and queues. A transport counts decisions: only it
 * knows that the windows of a policy are one decision, and the checks of a list many.
 */

import type { MessagePort } from 'node:worker_threads';
import type { Check } from '../core/check.ts';
import type { CheckParameters, Decision, DecisionCause } from '../core/decision.ts';
import type { Identity } from '../core/hash.ts';
import type { Log } from '../core/log.ts';
import type { Namespace } from '../core/namespace.ts';
import type { RuleName, RuleNumber } from '../core/window-rules.ts';
import type { HoldEngine } from './hold-engine.ts';
import type { RequestEngine } from './request-engine.ts';

/** Takes decisions that come in a later turn. A route has one for all of its requests. */
export interface Completion<C> {
  /**
   * @param context what `decide` was given
   * @param check a copy of the check, without the fields that only its transport knows
   */
  complete(context: C, startedMs: number, check: Check, decision: Decision): void;
  /** It could not be decided in time. An ApiError says whether it may have been counted. */
  fail(context: C, error: unknown): void;
}

export interface BatchCompletion<C> {
  /** @param checks copies of the checks, as `Completion` has them */
  complete(context: C, startedMs: number, checks: readonly Check[], decision: BatchDecision): void;
  fail(context: C, error: unknown): void;
}

/** The decisions on several checks. */
export interface BatchDecision {
  /** Whether every check was allowed. */
  allowed: boolean;
  /** By the number of the check; there may be more of them than checks. */
  decisions: readonly Decision[];
}

/** What a counter holds, and what each window rule that shares the counter makes of it. */
export interface CounterState {
  durationMs: number;
  /** The limit of the last check that it allowed. */
  limit: number;
  /** Of fixed and sliding windows: the start of the newest window with usage, Unix time in ms. */
  windowStart?: number;
  /** Of fixed and sliding windows: tokens used in that window, and in the window before it. */
  current?: number;
  previous?: number;
  /** Of GCRA: when the bucket is full again, Unix time in ms, rounded up. */
  fullAt?: number;
  usage: Partial<Record<RuleName, WindowUsage>>;
}

/** What a check would see now, under the limit of the counter, which is also its burst. */
export interface WindowUsage {
  used: number;
  remaining: number;
  /** The end of the current window, or when the bucket is full again: Unix time in ms. */
  reset: number;
}

/** The decision that a check would get. */
export interface Prediction {
  allowed: boolean;
  /** Tokens left before the check, also where the rule reports no `remaining` after a denial. */
  left: number;
  /** As in the decision. */
  remaining: number;
  reset: number;
  cause: DecisionCause;
  /**
   * The first ms at which a denied check would pass if no other is counted, Unix time. Undefined
   * unless `cause` is `limit_reached`.
   */
  passesAt: number | undefined;
}

/** The counters of an identity, and what checks of it would get at the same moment. */
export interface CounterExplanation {
  /** The time of the moment: Unix time in ms. */
  nowMs: number;
  /** In the order of their durations. */
  counters: CounterState[];
  /** Whether a check at this moment gets the prediction: no other machine can use the tokens. */
  isExact: boolean;
  /** Whether every check would be allowed. */
  allowed: boolean;
  /** By the number of the check. */
  predictions: Prediction[];
}

/** The checks that an explanation predicts, each with a counter of its own. */
export interface ExplainedChecks {
  checks: readonly CheckParameters[];
  /** Whether they are decided as one, as in `decideBatch`. Otherwise each is the next check. */
  isBatch: boolean;
}

/** Says which checks to predict, given the counters at the moment of the prediction. */
export type ChecksOf = (counters: readonly CounterState[]) => ExplainedChecks;

/** Which counters of an identity a call means. */
export interface CounterSelector {
  /** Undefined: counters of all durations. */
  durationsMs: readonly number[] | undefined;
  /** Undefined: counters of all rules. Fixed and sliding windows share their counters. */
  rule: RuleNumber | undefined;
}

/** The engine of one thread. Objects that it returns are overwritten by its next call. */
export interface Engine {
  readonly holds: HoldEngine;
  readonly requests: RequestEngine;

  /**
   * Decides a check, and counts its cost where it is allowed.
   * @param startedMs when the request was complete, by the monotonic clock
   * @returns undefined where `completion` is called later
   */
  decide<C>(
    check: Check,
    startedMs: number,
    context: C,
    completion: Completion<C>,
  ): Decision | undefined;

  /**
   * Decides up to MULTI_LIMIT_MAX checks as one: all are counted, or none. Each is judged on what
   * those before it leave. The `allowed` of a decision is that of its check alone. No deduction is
   * deferred, here and in `decideEach`.
   */
  decideBatch<C>(
    checks: readonly Check[],
    startedMs: number,
    context: C,
    completion: BatchCompletion<C>,
  ): BatchDecision | undefined;

  /**
   * Decides up to MULTI_LIMIT_MAX checks one after the other, each for itself.
   * @param countsDenied whether the cost of a denied check is added to its counter too, as Envoy's
   *   rate limit service requires. `remaining` of a fixed window is what was left before that; of
   *   other rules 0. A fixed window then denies every cost until it ends.
   *   A sliding window also carries its share into the next window. A GCRA bucket takes longer to
   *   refill, by about a duration at most. A check that is denied because the table is full is not
   *   counted.
   */
  decideEach<C>(
    checks: readonly Check[],
    startedMs: number,
    context: C,
    completion: BatchCompletion<C>,
    countsDenied: boolean,
  ): BatchDecision | undefined;

  /**
   * Returns tokens to a counter. Like `reset`, `inspect` and `explain` it takes effect after all
   * checks that were answered before it, on any thread.
   * @param window the number of the window in which they were counted; GCRA ignores it
   * @param confirm called before a deferred call acts. If it throws, nothing changes.
   * @returns how many: no more than are used, and none when the window is not the current one
   */
  refund(
    identity: Identity,
    rule: RuleNumber,
    durationMs: number,
    window: number,
    cost: number,
    confirm: () => void,
  ): number | Promise<number>;

  /**
   * Removes counters of an identity.
   * @returns how many there were
   */
  reset(
    identity: Identity,
    selector: CounterSelector,
    confirm: () => void,
  ): number | Promise<number>;

  /** Shows counters of an identity, in the order of their durations, and changes none. */
  inspect(
    identity: Identity,
    selector: CounterSelector,
    confirm: () => void,
  ): CounterState[] | Promise<CounterState[]>;

  /** Shows all counters of an identity, and predicts checks of it. Changes nothing. */
  explain(
    namespace: Namespace,
    identity: Identity,
    checksOf: ChecksOf,
    confirm: () => void,
  ): CounterExplanation | Promise<CounterExplanation>;

  /** A worker of the engine has started; messages on the port say that it has decided checks. */
  connectWorker(worker: number, port: MessagePort): void;
}

/** The engine of the process, on the main thread: what the engines of all threads share. */
export interface EngineHost {
  stats(): EngineStats;
  /**
   * Frees the memory of the counters of deleted namespaces, in the background. No check finds these
   * counters any more, so it does no harm if the process ends before. Resolves when all are
   * removed, and never if the engine is stopped before. One call at a time.
   * @param tags the first word of the hash state of each namespace
   */
  removeNamespaces(tags: ReadonlySet<number>): Promise<void>;
  /** Finishes all work that is deferred, and saves the counters. Called when no thread decides. */
  drain(): Promise<void>;
  /** Ends the threads of the engine. */
  stop(): Promise<void>;
}

/** One run of a shard worker. */
export interface WorkerRun {
  index: number;
  /** Above the indexes of acceptors, and never used again: the owner of its locks. */
  incarnation: number;
  /** By acceptor, for messages to it; none where the engine sends none. */
  notificationPorts: MessagePort[];
}

/** What an engine gives the host of the process, on the main thread. */
export interface HostedEngine {
  /** The file of its shard workers, whose default export has each `WorkerRun`, and their data. */
  readonly file: URL;
  readonly workerData: object;
  /** By acceptor and worker. */
  readonly channels: readonly (readonly SharedArrayBuffer[])[];
  /** Whether shard workers send messages to acceptors. */
  readonly notifiesAcceptors: boolean;
  /** Frees all locks of a run of a worker that has ended. */
  breakLocks(worker: number, incarnation: number): void;
  /** See `EngineHost`. Undefined: the memory is freed in another way. */
  removeNamespaces?(tags: ReadonlySet<number>): Promise<void>;
  clusterStats?(): ClusterStats;
  holdStats?(): HoldStats;
  /**
   * Called when the shard workers have stopped: logs what they could not do.
   * @param isComplete false if some of them did not stop in time
   */
  afterDrain?(isComplete: boolean, log: Log): void;
  /** Ends what it does on the main thread. */
  close?(): void;
}

export interface EngineStats {
  /** Entries that wait in the queues, by worker. */
  queueDepths: number[];
  workers: { configured: number; running: number; replaced: number };
  /** Undefined for an engine that shares its counters with no other machine. */
  cluster?: ClusterStats;
  /** Undefined for an engine whose reservations and leases are not in its memory. */
  holds?: HoldStats;
}

/** The live reservations and leases, and how many may be recorded. */
export interface HoldStats {
  capacity: number;
  reservations: number;
  reservedTokens: number;
  leases: number;
  leasedTokens: number;
  /** How long no lease is granted yet, after a crash. */
  leaseWaitMs: number;
  /** Undefined if leases may be forgotten in a crash. */
  horizon: HorizonFailures | undefined;
}

/** Writes of the lease horizon that have failed. */
export interface HorizonFailures {
  path: string;
  failures: number;
  /** The code of the last write, if it failed. */
  error: string | undefined;
}

/** What an engine knows of Redis, and of the machines that share its counters. */
export interface ClusterStats {
  /** By shard worker: whether its circuit breaker is closed, so that it uses Redis. */
  connections: boolean[];
  /** Whether the live machines know this one. Redis grants it nothing before. */
  hasJoined: boolean;
  /** Whether Redis has lost counters, and not all machines have reported theirs. */
  isRecovering: boolean;
  /** Whether counters stay closed until their usage is proven: WEIR_RECOVERY=exact. */
  isExact: boolean;
  /** Machines that share the counters, with this one; 1 until Redis has answered. */
  machines: number;
}
