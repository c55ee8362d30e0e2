/**
 * Why a server is degraded: all faults that /readyz, `weir health`, the dashboard and the metric
 * `weir_degraded` report, with what each does to checks and what an operator does. The watch finds
 * the faults that exist now, on the main thread, and remembers when each began, and in memory those
 * that have ended.
 */

import {
  FAULT_PAUSE_MS,
  NEARLY_FULL_SHARE,
  PAST_FAULT_MIN_MS,
  PAST_FAULTS_MAX,
  PAST_FAULTS_MS,
  REPLACED_RECENTLY_MS,
} from '../core/constants.ts';
import type { FileFault } from '../core/failure-log.ts';
import type { EngineHost, EngineStats } from '../engine/engine.ts';
import type { EngineDownPolicy } from '../redis/settings.ts';
import type { Clock } from '../shared-memory/clock.ts';

interface FaultDeclaration {
  /** The cause, for the documentation. */
  cause: string;
  /** What was wrong, after its end, where that is not the cause. */
  past?: string;
  /** What the fault does to checks, in sentences. */
  effect: string;
  /** What the operator does, in sentences. */
  remedy: string;
  /** The section of the documentation, relative to docs, as `operations.md#crashes`. */
  see: string;
}

const RECOVERY_REMEDY =
  'weir cluster status shows the machines, and weir cluster forget removes one that does not ' +
  'come back';
/** Of a recovery that is exact. */
const CLOSED_CAUSE = 'Redis lost usage: counters are closed until all machines have reported';
export const CLOSED_REASON = `${CLOSED_CAUSE}; ${RECOVERY_REMEDY}`;

const NO_EFFECT = 'Checks continue.';
const DISK_REMEDY = 'Free space on the disk, or make the file writable: weir tries again itself.';
const FULL_DISK = 'operations.md#full-disk';

/** By the value of the label `reason`. A server with several faults reports them in this order. */
export const FAULTS = {
  workers_missing: {
    cause: 'a shard worker does not run',
    effect: 'Checks continue. The shards of the worker have no sweeps and checkpoints meanwhile.',
    remedy: 'weir starts it again. If this lasts, find "a shard worker is replaced" in the log.',
    see: 'operations.md#crashes',
  },
  workers_replaced: {
    cause: 'shard workers have failed in the last 10 minutes',
    past: 'shard workers failed and were replaced',
    effect: 'Checks continue. The cost of a check may have been counted twice.',
    remedy: 'Find the cause in the log, "a shard worker is replaced", and report it.',
    see: 'operations.md#crashes',
  },
  redis_down: {
    cause: 'Redis does not respond to a shard worker',
    effect: '`WEIR_ON_ENGINE_DOWN` decides checks when their leases are used up.',
    remedy: 'Check Redis and the network. weir_redis_errors_total has the kinds of errors.',
    see: 'cluster.md#what-each-fault-does',
  },
  redis_not_joined: {
    cause: 'the other machines do not know this one',
    effect: 'Redis grants it no leases, and decides its checks.',
    remedy: 'This ends by itself within seconds. If it lasts, read weir cluster status.',
    see: 'cluster.md#operation',
  },
  redis_lost_usage: {
    cause: 'Redis lost usage, and the machines restore it',
    effect: 'With `WEIR_RECOVERY=exact` checks are denied until all machines have reported.',
    remedy: `${RECOVERY_REMEDY}.`,
    see: 'cluster.md#recovery',
  },
  registry_down: {
    cause: 'the registry in Redis does not respond',
    effect: 'Checks continue. Changes get a 503, and changes of other machines are not seen.',
    remedy: 'Check Redis and the network.',
    see: 'cluster.md#registry',
  },
  registry_diverged: {
    cause: 'the registry in Redis has other records than this machine',
    effect: 'Checks continue. Changes get a 503, and changes of other machines are not seen.',
    remedy: 'The log has the cause.',
    see: 'cluster.md#registry',
  },
  redis_evicts: {
    cause: 'Redis deletes keys when it is full',
    effect: 'Checks continue. A full Redis would lose usage.',
    remedy: 'Set maxmemory-policy noeviction.',
    see: 'cluster.md#eviction-policy',
  },
  store: {
    cause: 'the store cannot be written',
    effect: NO_EFFECT,
    remedy: DISK_REMEDY,
    see: FULL_DISK,
  },
  checkpoints: {
    cause: 'checkpoints cannot be written',
    effect: NO_EFFECT,
    remedy: DISK_REMEDY,
    see: FULL_DISK,
  },
  lease_horizon: {
    cause: 'the lease horizon cannot be written',
    effect: 'Checks continue, except those of leases.',
    remedy: DISK_REMEDY,
    see: FULL_DISK,
  },
  analytics: {
    cause: 'the analytics cannot be written',
    effect: NO_EFFECT,
    remedy: DISK_REMEDY,
    see: FULL_DISK,
  },
  events: {
    cause: 'events cannot be written',
    effect: NO_EFFECT,
    remedy: DISK_REMEDY,
    see: FULL_DISK,
  },
  table_nearly_full: {
    cause: `live counters are ${NEARLY_FULL_SHARE * 100} % of \`WEIR_COUNTERS\` or more`,
    effect: 'Limits are exact up to that number. Above it, live counters may be evicted.',
    remedy: 'Raise `WEIR_COUNTERS`, or find the namespace with unusually many checks.',
    see: 'operations.md#counters',
  },
  rls_rules: {
    cause: 'changed rules of the rate limit service are invalid',
    effect: 'The old rules decide checks.',
    remedy: 'Correct the file. weir rls validate checks a folder.',
    see: 'envoy-rate-limit-service.md#reload',
  },
} as const satisfies Record<string, FaultDeclaration>;

export type FaultReason = keyof typeof FAULTS;
export const FAULT_REASONS = Object.keys(FAULTS) as readonly FaultReason[];

/** A fault that exists now, as sentences. */
export interface Fault {
  reason: FaultReason;
  text: string;
}

/** A fault that has ended. */
export interface PastFault {
  reason: FaultReason;
  cause: string;
  /** Unix times in ms. The watch looks once a second. */
  start: number;
  end: number;
}

const FILE_REASONS = ['store', 'checkpoints', 'lease_horizon', 'analytics', 'events'] as const;
/** Files that cannot be written at the moment, by what they are for. */
export type FileFaults = Partial<Record<(typeof FILE_REASONS)[number], FileFault | undefined>>;

/** The copy of the registry that this machine has, and the Redis in which the registry is. */
export interface ReplicaStats {
  version: number;
  /** Time since this machine last read the version in Redis. */
  ageMs: number;
  /** `diverged`: Redis has other records than this machine, which it must not replace. */
  state: 'current' | 'unreachable' | 'diverged';
  /** Servers that may delete keys, and must not (WEIR_REDIS_EVICTION), each with its policy. */
  evicting: readonly string[];
}

export interface FaultSources {
  engine: Pick<EngineHost, 'stats'>;
  /** Where the registry is in Redis. */
  replica?: () => ReplicaStats;
  files: () => FileFaults;
  /** Why changed rules of the rate limit service are not in use. */
  rulesFault: () => string | undefined;
  /** Live counters, and those that the table holds without an eviction. */
  liveCounters: () => number;
  capacity: number;
  /** With the engine `redis`. */
  onEngineDown?: EngineDownPolicy;
  clock: Pick<Clock, 'nowMs' | 'monotonicMs'>;
}

/** What is wrong, by reason. */
type Causes = Partial<Record<FaultReason, string>>;

export class FaultWatch {
  readonly #sources: FaultSources;
  /** When each fault that exists began. */
  readonly #begins = new Map<FaultReason, number>();
  /** As they were noticed. */
  #past: PastFault[] = [];
  /** Replacements of shard workers in the last minutes, the oldest first. */
  #replacements: { atMs: number; count: number }[] = [];
  #replaced = 0;

  constructor(sources: FaultSources) {
    this.#sources = sources;
  }

  /** Called once a second, so that the beginning and the end of each fault are known. */
  tick(): void {
    this.current();
  }

  /** The faults that exist now. */
  current(): Fault[] {
    const nowMs = this.#sources.clock.monotonicMs();
    const causes = this.#causes(nowMs);
    return FAULT_REASONS.flatMap((reason) => {
      const cause = causes[reason];
      const known = this.#begins.get(reason);
      if (cause === undefined) {
        if (known !== undefined) this.#end(reason, nowMs - known);
        return [];
      }
      const beginMs = known ?? nowMs;
      this.#begins.set(reason, beginMs);
      return [{ reason, text: textOf(reason, cause, nowMs - beginMs) }];
    });
  }

  /** Those of the last day since the start of the process. The one that ended last is the first. */
  past(): PastFault[] {
    const sinceMs = this.#sources.clock.nowMs() - PAST_FAULTS_MS;
    return this.#past.filter(({ end }) => end >= sinceMs).toSorted((a, b) => b.end - a.end);
  }

  #end(reason: FaultReason, ageMs: number): void {
    this.#begins.delete(reason);
    if (ageMs < PAST_FAULT_MIN_MS) return;
    const nowMs = this.#sources.clock.nowMs();
    const start = Math.round(nowMs - ageMs);
    // The server stays degraded for a time after the last replacement.
    const end = reason === 'workers_replaced' ? nowMs - REPLACED_RECENTLY_MS : nowMs;
    // One that comes and goes would push out all others.
    const before = this.#past.find((one) => {
      return one.reason === reason && start - one.end < FAULT_PAUSE_MS;
    });
    const { cause, past: text = cause }: FaultDeclaration = FAULTS[reason];
    const begin = before?.start ?? start;
    const past = { reason, cause: text.replaceAll('`', ''), start: begin, end };
    this.#past = [...this.#past.filter((one) => one !== before), past].slice(-PAST_FAULTS_MAX);
  }

  #causes(nowMs: number): Causes {
    const { engine, replica, files, rulesFault } = this.#sources;
    const stats = engine.stats();
    const rules = rulesFault();
    return {
      ...this.#workerCauses(stats, nowMs),
      ...this.#redisCauses(stats),
      ...(replica && registryCauses(replica())),
      ...fileCauses(files()),
      ...this.#tableCauses(),
      ...(rules !== undefined && {
        rls_rules: `rate limit service: old rules apply: ${rules}`,
      }),
    };
  }

  #workerCauses({ workers }: EngineStats, nowMs: number): Causes {
    const { configured, running, replaced } = workers;
    if (replaced > this.#replaced) {
      this.#replacements.push({ atMs: nowMs, count: replaced - this.#replaced });
    }
    this.#replaced = replaced;
    this.#replacements = this.#replacements.filter(({ atMs }) => {
      return nowMs - atMs < REPLACED_RECENTLY_MS;
    });
    const last = this.#replacements.at(-1);
    const count = this.#replacements.reduce((sum, one) => sum + one.count, 0);
    return {
      ...(running < configured && {
        workers_missing: `${configured - running} of ${configured} shard workers do not run`,
      }),
      ...(last && {
        workers_replaced:
          `shard workers replaced in the last ${ageText(REPLACED_RECENTLY_MS)}: ${count}, ` +
          `the last one ${ageText(nowMs - last.atMs)} ago`,
      }),
    };
  }

  #redisCauses({ cluster }: EngineStats): Causes {
    if (cluster === undefined) return {};
    const { connections, hasJoined, isRecovering, isExact } = cluster;
    const { onEngineDown } = this.#sources;
    const failed = connections.filter((isConnected) => !isConnected).length;
    const which = `${failed} of ${connections.length} shard workers`;
    return {
      ...(failed > 0 && {
        redis_down:
          `Redis does not respond to ${which}: WEIR_ON_ENGINE_DOWN=${onEngineDown} decides ` +
          'their checks',
      }),
      ...(failed === 0 &&
        !hasJoined && {
          redis_not_joined: 'the other machines do not know this one: Redis grants it no tokens',
        }),
      ...(isRecovering && {
        redis_lost_usage: isExact ? CLOSED_CAUSE : 'Redis lost usage: the machines restore it',
      }),
    };
  }

  #tableCauses(): Causes {
    const { liveCounters, capacity } = this.#sources;
    const live = liveCounters();
    if (!isNearlyFull(live, capacity)) return {};
    const ofCapacity = `the ${capacity} of WEIR_COUNTERS`;
    const percent = Math.floor((live / capacity) * 100);
    return {
      table_nearly_full:
        live > capacity
          ? `${live} live counters, more than ${ofCapacity}`
          : `${live} live counters, ${percent} % of ${ofCapacity}`,
    };
  }
}

/** Whether a table has so many live counters that it may soon be full. */
export function isNearlyFull(live: number, capacity: number): boolean {
  return live >= NEARLY_FULL_SHARE * capacity;
}

function registryCauses({ state, evicting }: ReplicaStats): Causes {
  return {
    ...(state === 'unreachable' && { registry_down: 'the registry in Redis does not respond' }),
    ...(state === 'diverged' && {
      registry_diverged: 'the registry in Redis has other records than this machine',
    }),
    ...(evicting.length > 0 && {
      redis_evicts: `Redis deletes keys when it is full (${evicting.join(', ')})`,
    }),
  };
}

function fileCauses(faults: FileFaults): Causes {
  const causes: Causes = {};
  for (const reason of FILE_REASONS) {
    const fault = faults[reason];
    if (fault === undefined) continue;
    causes[reason] = `disk: ${fault.path} cannot be written (${fault.error}); ${fault.effect}`;
  }
  return causes;
}

function textOf(reason: FaultReason, cause: string, ageMs: number): string {
  const { effect, remedy, see } = FAULTS[reason];
  // This cause has its own times.
  const begin = reason === 'workers_replaced' ? '' : ` It began ${ageText(ageMs)} ago.`;
  return `${cause}.${begin} ${effect} ${remedy} See docs/${see}.`.replaceAll('`', '');
}

const AGE_UNITS = [
  ['d', 86_400_000],
  ['h', 3_600_000],
  ['min', 60_000],
] as const;

/** An age in its largest unit, rounded down: 3 min. */
function ageText(ms: number): string {
  for (const [unit, unitMs] of AGE_UNITS) {
    if (ms >= unitMs) return `${Math.floor(ms / unitMs)} ${unit}`;
  }
  return `${Math.floor(ms / 1_000)} s`;
}
