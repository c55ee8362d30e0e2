/** The holds of all shards, as one acceptor uses them. Its stats block counts what is done. */

import type { Check } from '../../core/check.ts';
import { MULTI_LIMIT_MAX, SHARDS } from '../../core/constants.ts';
import { OUTCOME, type TableDecision } from '../../core/decision.ts';
import type { Identity } from '../../core/hash.ts';
import type { RuleNumber } from '../../core/window-rules.ts';
import type { Clock } from '../../shared-memory/clock.ts';
import { ACCEPTOR_STAT, type AcceptorStats } from '../../shared-memory/stats.ts';
import type {
  Commit,
  EndedHold,
  HoldEngine,
  HoldPolicies,
  Lease,
  LeaseRequest,
  LiveHolds,
  NamespaceFingerprint,
  Reservation,
} from '../hold-engine.ts';
import { HOLD_KIND, type HoldId } from '../hold-id.ts';
import type { HoldTable } from '../holds/hold-table.ts';
import { NONE, RECORD, recordOfReference, shardOfReference } from '../holds/layout.ts';
import type { LeaseHorizon } from '../holds/lease-horizon.ts';
import { Leases } from '../holds/leases.ts';
import { liveHolds } from '../holds/live-holds.ts';
import { shardOf } from '../table/shard.ts';
import type { Counters } from './counters.ts';
import { ReservationBatch } from './reservation-batch.ts';
import { ShardHolds } from './shard-holds.ts';

export class MemoryHolds implements HoldEngine {
  readonly #tables: readonly HoldTable[];
  readonly #shards: readonly ShardHolds[];
  readonly #leases: readonly Leases[];
  readonly #reservations: ReservationBatch;
  readonly #clock: Clock;
  readonly #stats: AcceptorStats;
  /** Overwritten by each call, as the interface says. */
  readonly #decisions: readonly TableDecision[];
  readonly #reservation: Reservation;
  readonly #lease: Lease = { granted: false, id: undefined, inUse: 0, limit: 0, expiresAt: 0 };

  /**
   * @param tables by shard
   * @param horizon undefined if leases may be forgotten in a crash
   */
  constructor(
    counters: Counters,
    tables: readonly HoldTable[],
    policies: HoldPolicies,
    clock: Clock,
    stats: AcceptorStats,
    horizon?: LeaseHorizon,
  ) {
    if (tables.length !== SHARDS) throw new Error(`${tables.length} holds for ${SHARDS} shards`);
    this.#tables = tables;
    this.#shards = tables.map((table, shard) => {
      return new ShardHolds(counters.tables[shard], table, policies);
    });
    this.#leases = tables.map((table) => new Leases(table, policies.whenFull, horizon));
    const { batch } = counters;
    this.#reservations = new ReservationBatch(batch, tables, policies.whenFull);
    this.#decisions = Array.from({ length: MULTI_LIMIT_MAX }, (_, n) => batch.decision(n));
    this.#reservation = {
      allowed: false,
      decisions: this.#decisions,
      id: undefined,
      expiresAt: 0,
    };
    this.#clock = clock;
    this.#stats = stats;
  }

  reserve(checks: readonly Check[], startedMs: number, ttlMs: number): Reservation {
    const nowMs = this.#clock.wallMs(startedMs);
    const reservation = this.#reservation;
    const isDone = checks.length === 1 && this.#reserveOne(checks[0], nowMs, ttlMs);
    if (!isDone) this.#reserveAll(checks, nowMs, ttlMs);
    if (reservation.id !== undefined) this.#stats.increment(ACCEPTOR_STAT.reservations);
    for (let number = 0; number < checks.length; number++) {
      const { outcome } = this.#decisions[number];
      if (outcome === OUTCOME.evicted) this.#stats.increment(ACCEPTOR_STAT.liveEvictions);
      else if (outcome === OUTCOME.full) this.#stats.increment(ACCEPTOR_STAT.fullTableDecisions);
    }
    return reservation;
  }

  namespacesOf(id: HoldId): NamespaceFingerprint[] | undefined {
    const first = this.#namespaceOf(id);
    if (first === undefined) return undefined;
    const length = this.#tables[id.shard].listLengthOf(id);
    if (length === 1) return [first];
    const members = this.#membersOf(id);
    // A record may be lost: if there was no room for new holds, or in a table that is smaller now.
    return Array.from({ length }, (_, number) => {
      const member = number === 0 ? undefined : members.at(number);
      return (member && this.#namespaceOf(member)) ?? first;
    });
  }

  commit(id: HoldId, costs: readonly number[]): Commit | undefined {
    const commit = this.#settle(id, costs);
    if (commit === undefined) return undefined;
    this.#stats.increment(ACCEPTOR_STAT.commits);
    if (commit.isLate) this.#stats.increment(ACCEPTOR_STAT.lateCommits);
    return commit;
  }

  cancel(id: HoldId): number | undefined {
    const commit = this.#settle(id, []);
    if (commit === undefined) return undefined;
    this.#stats.increment(ACCEPTOR_STAT.cancellations);
    return commit.released;
  }

  acquire(request: LeaseRequest): Lease {
    const lease = this.#lease;
    const leases = this.#leases[shardOf(request.identity)];
    const isFull = leases.acquire(request, this.#clock.nowMs(), lease);
    if (isFull) this.#stats.increment(ACCEPTOR_STAT.fullHoldDecisions);
    return lease;
  }

  renew(id: HoldId, ttlMs: number): Lease {
    this.#leases[id.shard].renew(id, ttlMs, this.#clock.nowMs(), this.#lease);
    return this.#lease;
  }

  release(id: HoldId): number | undefined {
    const released = this.#leases[id.shard].release(id, this.#clock.nowMs());
    if (released) this.#stats.increment(ACCEPTOR_STAT.concurrencyLeasesReleased);
    return released;
  }

  liveHolds(identity: Identity): LiveHolds {
    return liveHolds(this.#tables[shardOf(identity)], identity, this.#clock.nowMs());
  }

  endLeases(identity: Identity): number {
    return this.#leases[shardOf(identity)].endAll(identity, this.#clock.nowMs());
  }

  endHold(identity: Identity, handle: string): EndedHold | undefined {
    const holds = this.#shards[shardOf(identity)];
    const ended = holds.endByHandle(identity, handle, this.#clock.nowMs());
    if (ended === undefined) return undefined;
    this.#stats.increment(
      ended.kind === HOLD_KIND.lease
        ? ACCEPTOR_STAT.concurrencyLeasesReleased
        : ACCEPTOR_STAT.cancellations,
    );
    return ended;
  }

  /** @returns false: there is no room for its record, and nothing is done */
  #reserveOne(check: Check, nowMs: number, ttlMs: number): boolean {
    const shard = this.#shards[shardOf(check.identity)];
    return shard.reserve(check, nowMs, ttlMs, this.#decisions[0], this.#reservation);
  }

  #reserveAll(checks: readonly Check[], nowMs: number, ttlMs: number): void {
    const batch = this.#reservations;
    const reservation = this.#reservation;
    reservation.allowed = batch.decide(checks, nowMs, ttlMs);
    reservation.id = batch.id;
    reservation.expiresAt = batch.id === undefined ? 0 : batch.expiresAt;
    if (batch.isFull) this.#stats.increment(ACCEPTOR_STAT.fullHoldDecisions);
  }

  /** Applies the actual costs to the checks of a reservation, one after the other. */
  #settle(id: HoldId, costs: readonly number[]): Commit | undefined {
    const nowMs = this.#clock.nowMs();
    if (this.#tables[id.shard].listLengthOf(id) === 1) {
      return this.#shards[id.shard].settle(id, costs[0] ?? 0, nowMs);
    }
    const sum = { charged: 0, released: 0, isLate: false };
    for (const [number, member] of this.#membersOf(id).entries()) {
      const commit = this.#shards[member.shard].settle(member, costs[number] ?? 0, nowMs);
      // The others may still be known, because the times of shards differ. They stay as they are.
      if (commit === undefined && number === 0) return undefined;
      sum.charged += commit?.charged ?? 0;
      sum.released += commit?.released ?? 0;
      sum.isLate ||= commit?.isLate ?? false;
    }
    return sum;
  }

  /**
   * The ids of all records of a reservation, or of a lease. The first is the given one. Behind a
   * record that is lost they are those of no hold.
   */
  #membersOf(id: HoldId): HoldId[] {
    const members = [id];
    const length = this.#tables[id.shard].listLengthOf(id);
    for (let last = id; ; last = members[members.length - 1]) {
      const next = this.#tables[last.shard].nextOfList(last);
      if (next === NONE || members.length >= length) return members;
      const shard = shardOfReference(next);
      const record = recordOfReference(next);
      members.push({ ...id, shard, record, isMember: true });
    }
  }

  /**
   * Without the lock: another thread may be using the record again, so that this is the namespace
   * of another hold. Then the call that ends or renews the hold finds none with its secret.
   */
  #namespaceOf(id: HoldId): NamespaceFingerprint | undefined {
    const table = this.#tables[id.shard];
    const { memory } = table;
    const record = table.find(id, this.#clock.nowMs());
    if (record === NONE) return undefined;
    return [memory.word(record, RECORD.namespace), memory.word(record, RECORD.namespace + 1)];
  }

  /** See `ShardHolds`. */
  voidLocked(identity: Identity, durationMs?: number, rule?: RuleNumber): void {
    this.#shards[shardOf(identity)].voidLocked(identity, durationMs, rule);
  }
}
