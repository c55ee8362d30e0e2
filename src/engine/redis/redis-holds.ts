/**
 * Reservations and leases of an acceptor whose machine shares them with others: all of them are in
 * Redis, by its clock. A reservation is a batch of checks, from leases of tokens where these
 * suffice, and then a record for each check in the bucket of its counter. If not all can be
 * recorded, what was deducted is returned. A failure is an ApiError (503), which says whether
 * something may have been done.
 */

import { type Check, copyCheck } from '../../core/check.ts';
import { SHARDS } from '../../core/constants.ts';
import { OUTCOME, type TableDecision } from '../../core/decision.ts';
import { ApiError } from '../../core/errors.ts';
import type { Identity } from '../../core/hash.ts';
import { hasWindows } from '../../core/window-rules.ts';
import { ACCEPTOR_STAT, type AcceptorStats } from '../../shared-memory/stats.ts';
import type { BatchCompletion, BatchDecision, Engine } from '../engine.ts';
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
import { HOLD_KIND, type HoldId, handleOf, newSecret, type Secret } from '../hold-id.ts';
import { shardOf, workerOf } from '../table/shard.ts';
import { windowEndingAt } from '../windows/window.ts';
import { restoreUnchanged } from './check-batch.ts';
import type { EngineState } from './engine-state.ts';
import { WITHOUT_CHECK } from './hold-client.ts';
import type { HoldAnswer, HoldTerms } from './scripts/holds.ts';
import { HOLD_STATUS } from './scripts/records.ts';
import type { WorkerRequests } from './worker-requests.ts';

interface RedisHoldsOptions {
  engine: Pick<Engine, 'decideBatch' | 'refund'>;
  requests: WorkerRequests;
  state: EngineState;
  policies: HoldPolicies;
  stats: AcceptorStats;
}

/** A check that is decided, and what its record says. */
interface DecidedCheck {
  check: Check;
  decision: TableDecision;
  terms: HoldTerms;
}

interface CopiedDecision {
  allowed: boolean;
  decisions: TableDecision[];
}

/** Resolves with the decision on a batch, which comes in a later turn. */
interface Resolver {
  resolve: (decision: BatchDecision) => void;
  reject: (error: unknown) => void;
}

const RESOLVE: BatchCompletion<Resolver> = {
  complete: ({ resolve }, _startedMs, _checks, decision) => resolve(decision),
  fail: ({ reject }, error) => reject(error),
};

export class RedisHolds implements HoldEngine {
  readonly #options: RedisHoldsOptions;

  constructor(options: RedisHoldsOptions) {
    this.#options = options;
  }

  async reserve(
    requested: readonly Check[],
    startedMs: number,
    ttlMs: number,
  ): Promise<Reservation> {
    const { state, stats, policies } = this.#options;
    const checks = requested.map(copyCheck);
    for (const { identity } of checks) this.#requireRedis(shardOf(identity));
    const { allowed, decisions } = await this.#decide(checks, startedMs);
    const denied = { allowed: false, decisions, id: undefined, expiresAt: 0 };
    if (!allowed) return denied;
    const secret = newSecret();
    const decided = checks.map((check, number) => {
      const decision = decisions[number];
      const reservedUs = state.redisUs(check.identity.h3, startedMs);
      const terms = this.#termsOf(check, decision, { secret, number, reservedUs });
      return { check, decision, terms };
    });
    const [first] = decided;
    first.terms.others = decided.slice(1).map(({ terms }) => referenceOf(terms));
    const answers = await this.#record(decided, ttlMs);
    if (answers.some(({ holdStatus }) => holdStatus === HOLD_STATUS.full)) {
      stats.increment(ACCEPTOR_STAT.fullHoldDecisions);
      const isAllowed = policies.whenFull === 'allow';
      await this.#undo(decided, isAllowed);
      if (!isAllowed) restoreUnchanged(checks, decisions);
      return { ...denied, allowed: isAllowed };
    }
    stats.increment(ACCEPTOR_STAT.reservations);
    const expiresAt = Math.min(...answers.map((answer) => answer.expiresAt));
    return { allowed, decisions, id: this.#idOf(HOLD_KIND.reservation, first.terms), expiresAt };
  }

  async namespacesOf(id: HoldId): Promise<NamespaceFingerprint[] | undefined> {
    const first = await this.#find(id);
    if (first === undefined) return undefined;
    const others = await Promise.all(membersOf(id, first).map((member) => this.#find(member)));
    // A record may be lost, if Redis has evicted it.
    return [first, ...others].map((found) => (found ?? first).namespace);
  }

  async commit(id: HoldId, costs: readonly number[]): Promise<Commit | undefined> {
    const { stats } = this.#options;
    const commit = await this.#settle(id, costs);
    if (commit === undefined) return undefined;
    stats.increment(ACCEPTOR_STAT.commits);
    if (commit.isLate) stats.increment(ACCEPTOR_STAT.lateCommits);
    return commit;
  }

  async cancel(id: HoldId): Promise<number | undefined> {
    const commit = await this.#settle(id, []);
    if (commit === undefined) return undefined;
    this.#options.stats.increment(ACCEPTOR_STAT.cancellations);
    return commit.released;
  }

  async acquire({ namespace, identity, limit, cost, ttlMs }: LeaseRequest): Promise<Lease> {
    const { state, stats, requests, policies } = this.#options;
    const shard = shardOf(identity);
    const { h0, h1, h2, h3 } = identity;
    const [namespace0, namespace1] = namespace.hashState;
    const terms: HoldTerms = {
      ...{ bucket: state.bucketOf(identity), secret: newSecret(), number: 0 },
      ...{ kind: HOLD_KIND.lease, identity: { h0, h1, h2, h3 }, limit, tokens: cost },
      namespace: [namespace0, namespace1],
      ...WITHOUT_CHECK,
    };
    this.#requireRedis(shard);
    const id = this.#idOf(HOLD_KIND.lease, terms);
    const call = { operation: 'acquire', terms, ttlMs } as const;
    let answer: HoldAnswer;
    try {
      ({ answer } = await requests.send(this.#workerOf(shard), { kind: 'beginHold', call }));
    } catch (error) {
      // It may have been granted, and no client knows its id.
      this.#call(id, { operation: 'drop', cost: 0 }).catch(() => {});
      throw error;
    }
    const isFull = answer.holdStatus === HOLD_STATUS.full;
    const granted = answer.isGranted || (isFull && policies.whenFull === 'allow');
    if (isFull) stats.increment(ACCEPTOR_STAT.fullHoldDecisions);
    const { inUse, expiresAt, isGranted } = answer;
    return { granted, id: isGranted ? id : undefined, inUse, limit, expiresAt };
  }

  async renew(id: HoldId, ttlMs: number): Promise<Lease> {
    const answer = await this.#call(id, { operation: 'renew', ttlMs });
    if (answer === undefined) return { granted: false, id, inUse: 0, limit: 0, expiresAt: 0 };
    const { isGranted: granted, inUse, limit, expiresAt } = answer;
    return { granted, id, inUse, limit, expiresAt };
  }

  async release(id: HoldId): Promise<number | undefined> {
    const answer = await this.#call(id, { operation: 'release' });
    if (answer === undefined) return undefined;
    if (!answer.isGranted) return 0;
    this.#options.stats.increment(ACCEPTOR_STAT.concurrencyLeasesReleased);
    return answer.charged;
  }

  async liveHolds(identity: Identity): Promise<LiveHolds> {
    const answer = await this.#callAll(identity, 'list');
    const { count, reservedTokens, inUse, listed } = answer;
    return {
      ...{ count, reservedTokens, inUse },
      listed: listed.map(({ secret, number: _, ...hold }) => {
        return { ...hold, handle: handleOfSecret(identity, secret) };
      }),
    };
  }

  async endHold(identity: Identity, handle: string): Promise<EndedHold | undefined> {
    const { h0, h1, h2, h3 } = identity;
    const copy = { h0, h1, h2, h3 };
    const { listed } = await this.#callAll(copy, 'list');
    const hold = listed.find(({ secret }) => handleOfSecret(copy, secret) === handle);
    if (hold === undefined) return undefined;
    const { kind, secret, number } = hold;
    const record = this.#options.state.bucketOf(copy);
    const id = { kind, shard: shardOf(copy), record, secret, number };
    const released = kind === HOLD_KIND.lease ? await this.release(id) : await this.#cancelOne(id);
    return released === undefined ? undefined : { kind, released };
  }

  async endLeases(identity: Identity): Promise<number> {
    const { count } = await this.#callAll(identity, 'endLeases');
    return count;
  }

  /** Decides checks as one. @returns copies of the decisions */
  async #decide(checks: readonly Check[], startedMs: number): Promise<CopiedDecision> {
    const { allowed, decisions } = await new Promise<BatchDecision>((resolve, reject) => {
      const { engine } = this.#options;
      const decided = engine.decideBatch(checks, startedMs, { resolve, reject }, RESOLVE);
      if (decided === undefined) return;
      const { allowed, decisions } = decided;
      resolve({ allowed, decisions: decisions.map((decision) => ({ ...decision })) });
    });
    const copies = decisions.slice(0, checks.length).map((decision) => {
      return { outcome: OUTCOME.decided, ...decision };
    });
    return { allowed, decisions: copies };
  }

  #termsOf(
    { namespace, identity, limit, durationMs, rule, cost }: Check,
    decision: TableDecision,
    name: { secret: Secret; number: number; reservedUs: number },
  ): HoldTerms {
    const { state, policies } = this.#options;
    const [namespace0, namespace1] = namespace.hashState;
    const { outcome } = decision;
    const isCounted = outcome !== OUTCOME.full && outcome !== OUTCOME.uncounted;
    return {
      ...name,
      bucket: state.bucketOf(identity),
      kind: HOLD_KIND.reservation,
      identity,
      namespace: [namespace0, namespace1],
      limit,
      // A policy has allowed it without counting it: for a full table, or without Redis.
      tokens: isCounted ? cost : 0,
      durationMs,
      rule,
      // Of a GCRA bucket a time: tokens that have refilled since then do not return. It may be
      // earlier than the deduction, and a few tokens less return then.
      window: hasWindows(rule)
        ? windowEndingAt(decision.reset, durationMs)
        : Math.floor(name.reservedUs / 1_000),
      chargesAtExpiry: policies.onExpiry === 'charge',
      others: [],
    };
  }

  /** Records all checks. @throws ApiError if one cannot be recorded; then all are undone */
  async #record(decided: readonly DecidedCheck[], ttlMs: number): Promise<HoldAnswer[]> {
    const { requests } = this.#options;
    const results = await Promise.allSettled(
      decided.map(async ({ terms }) => {
        const call = { operation: 'record', terms, ttlMs } as const;
        const worker = this.#workerOf(shardOf(terms.identity));
        return (await requests.send(worker, { kind: 'beginHold', call })).answer;
      }),
    );
    const answers = results.flatMap((result) => {
      return result.status === 'fulfilled' ? [result.value] : [];
    });
    if (answers.length === decided.length) return answers;
    await this.#undo(decided);
    throw results.find((result) => result.status === 'rejected')?.reason;
  }

  /**
   * Ends what is recorded of a reservation that no client gets.
   * @param isCounted whether its tokens stay counted; else they return, as far as Redis answers
   */
  async #undo(decided: readonly DecidedCheck[], isCounted = false): Promise<void> {
    const { engine } = this.#options;
    await Promise.allSettled(
      decided.map(async ({ check, terms }) => {
        const id = this.#idOf(HOLD_KIND.reservation, terms);
        const cost = isCounted ? terms.tokens : 0;
        const answer = await this.#call(
          { ...id, number: terms.number },
          { operation: 'drop', cost },
        );
        if (answer !== undefined || isCounted || terms.tokens === 0) return;
        const { identity, rule, durationMs } = check;
        await engine.refund(identity, rule, durationMs, terms.window, terms.tokens, () => {});
      }),
    );
  }

  /** Applies the actual costs to the checks of a reservation. */
  async #settle(id: HoldId, costs: readonly number[]): Promise<Commit | undefined> {
    const settle = (number: number) => ({ operation: 'settle', cost: costs[number] ?? 0 }) as const;
    const first = await this.#call(id, settle(0));
    if (first === undefined) return undefined;
    const others = await Promise.all(
      membersOf(id, first).map((member) => this.#call(member, settle(member.number))),
    );
    const commits = [first, ...others].filter((answer) => answer !== undefined);
    return {
      charged: sum(commits.map(({ charged }) => charged)),
      released: sum(commits.map(({ released }) => released)),
      isLate: commits.some(({ isLate }) => isLate),
    };
  }

  /** Cancels one check of a reservation, and none of the others of its list. */
  async #cancelOne(member: ListMember): Promise<number | undefined> {
    const answer = await this.#call(member, { operation: 'settle', cost: 0 });
    if (answer === undefined) return undefined;
    this.#options.stats.increment(ACCEPTOR_STAT.cancellations);
    return answer.released;
  }

  #find(id: HoldId & Partial<ListMember>): Promise<HoldAnswer | undefined> {
    return this.#call(id, { operation: 'find' });
  }

  /** @returns undefined if there is no such hold */
  async #call(
    { kind, shard, record: bucket, secret, number = 0 }: HoldId & Partial<ListMember>,
    operation:
      | { operation: 'find' | 'release' }
      | { operation: 'settle' | 'drop'; cost: number }
      | { operation: 'renew'; ttlMs: number },
  ): Promise<HoldAnswer | undefined> {
    const { requests, state } = this.#options;
    if (bucket >= state.bucketCount) return undefined;
    this.#requireRedis(shard);
    const call = { ...operation, name: { kind, bucket, secret, number } };
    const { answer } = await requests.send(this.#workerOf(shard), { kind: 'endHold', call });
    return answer.holdStatus === HOLD_STATUS.done ? answer : undefined;
  }

  async #callAll(identity: Identity, operation: 'list' | 'endLeases') {
    const { requests, state } = this.#options;
    const { h0, h1, h2, h3 } = identity;
    const shard = shardOf(identity);
    this.#requireRedis(shard);
    const bucket = state.bucketOf(identity);
    const call = { operation, bucket, identity: { h0, h1, h2, h3 } };
    const { answer } = await requests.send(this.#workerOf(shard), { kind: 'endHolds', call });
    return answer;
  }

  #idOf(kind: HoldId['kind'], { bucket, identity, secret }: HoldTerms): HoldId {
    return { kind, shard: shardOf(identity), record: bucket, secret };
  }

  #workerOf(shard: number): number {
    return workerOf(shard, this.#options.state.workerCount);
  }

  /** @throws ApiError (503) if the worker of a shard sends nothing to Redis at present */
  #requireRedis(shard: number): void {
    if (!this.#options.state.isDown(this.#workerOf(shard))) return;
    throw new ApiError('SERVICE_UNAVAILABLE', 'Redis is not reachable; nothing was changed');
  }
}

/** A hold of a list. */
type ListMember = HoldId & { number: number };

/** The others of a list, by its first. */
function membersOf(first: HoldId, { others }: HoldAnswer): ListMember[] {
  return others.map((reference, position) => {
    const shard = reference % SHARDS;
    return { ...first, shard, record: Math.floor(reference / SHARDS), number: position + 1 };
  });
}

/** Where the record of a hold lies. */
function referenceOf({ bucket, identity }: HoldTerms): number {
  return bucket * SHARDS + shardOf(identity);
}

/** The number in the handle is a part of the secret, of which enough is left. */
function handleOfSecret(identity: Identity, secret: Secret): string {
  return handleOf({ shard: shardOf(identity), record: secret[0] >>> 12, secret });
}

function sum(amounts: readonly number[]): number {
  return amounts.reduce((total, amount) => total + amount, 0);
}
