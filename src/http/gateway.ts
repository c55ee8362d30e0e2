/**
 * The checks of gateways, as an acceptor answers them: a request of any method, whose path names a
 * policy. Who asks, and for how much, is found out by the policy alone. The body is not looked at:
 * it may never come, so that a connection on which one is announced is closed behind the answer.
 *
 * One window is decided by the decider, several together in place, all or nothing. An override that
 * governs the caller takes the place of all of them. What fails in here is answered as the policy
 * says, never with a 5xx; only who asks for what there is not, or without a key where one is
 * needed, gets an error of the API.
 */

import type { NamespaceFinder } from '../api/finder.ts';
import type { Keyring } from '../auth/keyring.ts';
import type { Counters } from '../counters/counters.ts';
import { OUTCOME, type TableDecision } from '../counters/decision.ts';
import type { Identity } from '../counters/hash.ts';
import { type Asker, type Check, type Decider, tally, tallyOutcome } from '../decide/decider.ts';
import { describe } from '../describe.ts';
import { ApiError } from '../errors.ts';
import { type AcceptorLane, COUNT, TALLY } from '../lanes.ts';
import type { KnownNamespaces, Namespace } from '../namespaces/known.ts';
import type { Governed, OverridesInForce } from '../overrides/in-force.ts';
import { ANYBODY, IdentityReader } from '../policies/identity.ts';
import type { Policy } from '../policies/policy.ts';
import type { Quota } from '../policies/quota.ts';
import type { Clock } from '../time.ts';
import { type Framing, framingOf } from './framing.ts';
import { GatewayAnswers, WAYS, type Way, wayOf } from './gateway-answers.ts';
import { Lines } from './lines.ts';
import type { Outlet } from './outlet.ts';
import type { Replies } from './reply.ts';
import type { Route } from './route.ts';
import { fixedText, type HttpRequest, type HttpResponse } from './uws.ts';

export interface GatewayParts {
  keyring: Keyring;
  known: KnownNamespaces;
  finder: NamespaceFinder;
  counters: Counters;
  overrides: OverridesInForce;
  decider: Decider;
  clock: Clock;
  lane: AcceptorLane;
  outlet: Outlet;
  /** Of v1. */
  replies: Replies;
}

/** A window of a policy, as a check that is filled in for one request after the other. */
interface WindowCheck extends Governed {
  identifier: string;
}

interface Policed {
  policy: Policy;
  namespace: Namespace;
  identity: IdentityReader;
  answers: GatewayAnswers;
  checks: WindowCheck[];
  /** By the number of a way, also for a decision that comes later. */
  askers: readonly Asker[];
}

/** A check of a window, and what was decided of it. */
interface Decided {
  check: Check;
  decision: TableDecision;
}

const CHECK = '/v1/check/';
const AUTH_REQUEST = '/v1/auth-request/';
const WEIR_KEY = fixedText('x-weir-key');

export class GatewayChecks {
  readonly #parts: GatewayParts;
  readonly #lines = new Lines();
  #byName: ReadonlyMap<string, Policed> = new Map();

  constructor(parts: GatewayParts) {
    this.#parts = parts;
  }

  /** These policies, and no others, hold from the next check on. */
  switchTo(policies: readonly Policy[]): void {
    this.#byName = new Map(policies.map((policy) => [policy.namespace, this.#policed(policy)]));
  }

  /** @param needsKey whether the gateway has to show one; else it is known by its listener */
  routes(needsKey: boolean): Route[] {
    return [
      {
        method: 'ANY',
        path: `${CHECK}*`,
        handle: (res, req) => this.#handle(res, req, CHECK, 429, needsKey),
      },
      {
        method: 'ANY',
        path: `${AUTH_REQUEST}*`,
        handle: (res, req) => this.#handle(res, req, AUTH_REQUEST, 403, needsKey),
      },
    ];
  }

  #policed(policy: Policy): Policed {
    const { known, outlet, replies } = this.#parts;
    const { namespace: name, cost } = policy;
    // It is there from now on, so that it has series of its own and can be given overrides.
    const namespace = known.get(name) ?? known.create(name) ?? known.unregistered(name);
    const answers = new GatewayAnswers(policy, outlet, () => replies.draining);
    const checks = policy.windows.map(({ limit, duration }) => {
      const terms = { limit, durationMs: duration, cost, isSliding: false, isAsync: false };
      return { namespace, identifier: '', overrideId: undefined, ...terms };
    });
    const identity = new IdentityReader(policy);
    const policed: Policed = { policy, namespace, identity, answers, checks, askers: [] };
    policed.askers = WAYS.map((way) => ({
      answer: (res, check, decision) => {
        this.#answer(res, policed, way, [{ check, decision }], decision.admitted);
      },
      fail: (res, error) => this.#fail(res, policed, way, error),
    }));
    return policed;
  }

  #handle(
    res: HttpResponse,
    req: HttpRequest,
    prefix: string,
    refusal: 403 | 429,
    needsKey: boolean,
  ): void {
    const { clock, replies } = this.#parts;
    const startedMs = clock.monotonicMs();
    const method = req.getCaseSensitiveMethod();
    const path = req.getUrl();
    // Behind the namespace there may be the path of the request, but for nginx.
    const slash = refusal === 429 ? path.indexOf('/', prefix.length) : -1;
    const end = slash < 0 ? path.length : slash;
    const isHead = method === 'HEAD';
    let policed: Policed;
    try {
      policed = this.#find(req, path.slice(prefix.length, end), needsKey);
    } catch (error) {
      closeBehindBody(replies, res, framingOf(req));
      replies.error(res, error, { isHead });
      return;
    }
    const way = wayOf(refusal, isHead);
    try {
      const { identity } = policed;
      const framing = this.#lines.read(req, method, path.slice(end), identity.headers);
      closeBehindBody(replies, res, framing);
      if (framing.fault !== undefined) {
        replies.error(res, framing.fault, { isHead });
        return;
      }
      this.#decide(res, policed, way, identity.read(this.#lines), startedMs);
    } catch (error) {
      this.#fail(res, policed, way, error);
    }
  }

  #decide(
    res: HttpResponse,
    policed: Policed,
    way: Way,
    identity: string | undefined,
    startedMs: number,
  ): void {
    const { counters, overrides, decider, clock, lane } = this.#parts;
    const { policy, namespace, checks, askers } = policed;
    const identifier = identity ?? ANYBODY;
    if (identifier === ANYBODY) {
      namespace.row[TALLY.unidentified]++;
      const admits = policy.missing === 'allow';
      if (policy.missing === 'deny' || (admits && identity === undefined)) {
        this.#answerUnidentified(res, policed, way, admits);
        lane.answered(clock.monotonicMs() - startedMs);
        return;
      }
    }
    const id = counters.identify(namespace.state, identifier);
    const [check] = checks;
    fill(policed, check, identifier);
    const isOverridden = overrides.govern(check, id);
    if (isOverridden) lane.count(COUNT.overridden);
    if (isOverridden || checks.length === 1) {
      const asker = askers[way.number];
      const decision = decider.decide(check, id, startedMs, res, asker);
      if (decision === undefined) return;
      asker.answer(res, check, decision);
    } else {
      this.#decideTogether(res, policed, way, id, startedMs);
    }
    lane.answered(clock.monotonicMs() - startedMs);
  }

  #decideTogether(
    res: HttpResponse,
    policed: Policed,
    way: Way,
    id: Identity,
    startedMs: number,
  ): void {
    const { counters, clock, lane } = this.#parts;
    const { namespace, checks, policy } = policed;
    const { together } = counters;
    together.begin();
    for (const check of checks) together.add(id, namespace.state[0], check);
    const admitted = together.decide(clock.wallMs(startedMs));
    const decided = checks.map((check, number) => ({ check, decision: together.decision(number) }));
    // One decision about one request, whatever became of each counter.
    for (const { decision } of decided.slice(1)) tallyOutcome(lane, decision.outcome);
    tally(lane, namespace, policy.cost, admitted, decided[0].decision.outcome);
    this.#answer(res, policed, way, decided, admitted);
  }

  #answer(
    res: HttpResponse,
    { policy, namespace, answers }: Policed,
    way: Way,
    decided: readonly Decided[],
    admitted: boolean,
  ): void {
    const [{ check }] = decided;
    const [{ limit, duration }] = policy.windows;
    // Of a decision that comes later no more is left than its check: an override shows in that.
    const isOwn =
      decided.length === policy.windows.length &&
      check.limit === limit &&
      check.durationMs === duration;
    const quotas = decided.map(({ check, decision }, window): Quota => {
      const { limit, durationMs } = check;
      const { remaining, reset, admitted: admits } = decision;
      const name = isOwn ? answers.nameOf(window) : namespace.name;
      return { name, limit, durationMs, remaining, reset, admits };
    });
    const left = { quotas, nowMs: this.#parts.clock.nowMs(), isOwn };
    if (!admitted && policy.shadow) namespace.row[TALLY.shadowed]++;
    if (admitted || policy.shadow) answers.admit(res, left);
    else answers.refuse(res, left, way);
  }

  #answerUnidentified(res: HttpResponse, policed: Policed, way: Way, admits: boolean): void {
    const { policy, namespace, identity, answers } = policed;
    tally(this.#parts.lane, namespace, policy.cost, admits, OUTCOME.decided);
    const left = answers.untouched(this.#parts.clock.nowMs(), admits);
    if (!admits && policy.shadow) namespace.row[TALLY.shadowed]++;
    if (admits || policy.shadow) answers.admit(res, left);
    else answers.refuse(res, left, way, `no request is admitted without ${identity.wanted}`);
  }

  /** Whatever was thrown, or could not be decided in time. */
  #fail(res: HttpResponse, { policy, answers }: Policed, way: Way, error: unknown): void {
    const { lane, replies } = this.#parts;
    lane.count(policy.onError === 'allow' ? COUNT.failuresAllowed : COUNT.failuresDenied);
    replies.report(res, error);
    answers.fail(res, way);
  }

  /** @throws ApiError */
  #find(req: HttpRequest, name: string, needsKey: boolean): Policed {
    if (needsKey) {
      const key = this.#parts.keyring.verifyBare(req.getHeader(WEIR_KEY));
      this.#parts.finder.require(key, 'limit', name);
    }
    const policed = this.#byName.get(name);
    if (policed !== undefined) return policed;
    throw new ApiError('NOT_FOUND', `there is no policy for the namespace ${describe(name)}`);
  }
}

/** A body is not read, and may never come: the next request would be taken for it. */
function closeBehindBody(replies: Replies, res: HttpResponse, framing: Framing): void {
  if (framing.closes || framing.hasBody) replies.closeAfter(res);
}

/** Whom a check is about, on the policy's terms: an override may have changed them for another. */
function fill({ policy }: Policed, check: WindowCheck, identifier: string): void {
  const [{ limit, duration }] = policy.windows;
  check.identifier = identifier;
  check.limit = limit;
  check.durationMs = duration;
  check.isAsync = false;
}
