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

import type { NamespaceFinder } from '../api/common/namespace-finder.ts';
import type { Keyring } from '../auth/keyring.ts';
import type { Check } from '../core/check.ts';
import { OUTCOME, type TableDecision } from '../core/decision.ts';
import { formatValue } from '../core/describe.ts';
import { ApiError } from '../core/errors.ts';
import type { Identity } from '../core/hash.ts';
import type { Namespace } from '../core/namespace.ts';
import { NO_BURST, RULE } from '../core/window-rules.ts';
import { type Completion, countDecision, countOutcome, type Engine } from '../engine/engine.ts';
import type { Counters } from '../engine/memory/counters.ts';
import type { ActiveOverrides, OverridableCheck } from '../overrides/active.ts';
import { IdentityReader, UNIDENTIFIED } from '../policies/identity.ts';
import type { Policy } from '../policies/policy.ts';
import type { Quota } from '../policies/quota.ts';
import type { KnownNamespaces } from '../registry/known-namespaces.ts';
import type { Clock } from '../shared-memory/clock.ts';
import { ACCEPTOR_STAT, type AcceptorStats, NAMESPACE_STAT } from '../shared-memory/stats.ts';
import { type Framing, readFraming } from './framing.ts';
import {
  GatewayResponder,
  RESPONSE_KINDS,
  type ResponseKind,
  responseKindOf,
} from './gateway-responder.ts';
import { HeaderReader } from './header-reader.ts';
import type { Responder } from './responder.ts';
import type { ResponseWriter } from './response-writer.ts';
import type { Route } from './route.ts';
import { fixedText, type HttpRequest, type HttpResponse } from './uws.ts';

export interface GatewayCheckDependencies {
  keyring: Keyring;
  knownNamespaces: KnownNamespaces;
  finder: NamespaceFinder;
  counters: Counters;
  overrides: ActiveOverrides;
  decider: Engine<HttpResponse>;
  clock: Clock;
  stats: AcceptorStats;
  responseWriter: ResponseWriter;
  /** Of v1. */
  responder: Responder;
}

/** A window of a policy, as a check that is filled in for one request after the other. */
interface WindowCheck extends OverridableCheck {
  identifier: string;
}

interface CompiledPolicy {
  policy: Policy;
  namespace: Namespace;
  identityReader: IdentityReader;
  gatewayResponder: GatewayResponder;
  checks: WindowCheck[];
  /** By the number of a way, also for a decision that comes later. */
  completions: readonly Completion<HttpResponse>[];
}

/** A check of a window, and what was decided of it. */
interface WindowDecision {
  check: Check;
  decision: TableDecision;
}

const CHECK_PATH = '/v1/check/';
const AUTH_REQUEST_PATH = '/v1/auth-request/';
const WEIR_KEY = fixedText('x-weir-key');

export class GatewayCheckHandler {
  readonly #dependencies: GatewayCheckDependencies;
  readonly #headerReader = new HeaderReader();
  #policiesByNamespace: ReadonlyMap<string, CompiledPolicy> = new Map();

  constructor(dependencies: GatewayCheckDependencies) {
    this.#dependencies = dependencies;
  }

  /** These policies, and no others, hold from the next check on. */
  activate(policies: readonly Policy[]): void {
    this.#policiesByNamespace = new Map(
      policies.map((policy) => [policy.namespace, this.#compile(policy)]),
    );
  }

  /** @param needsKey whether the gateway has to show one; else it is known by its listener */
  routes(needsKey: boolean): Route[] {
    return [
      {
        method: 'ANY',
        path: `${CHECK_PATH}*`,
        handle: (res, req) => this.#handle(res, req, CHECK_PATH, 429, needsKey),
      },
      {
        method: 'ANY',
        path: `${AUTH_REQUEST_PATH}*`,
        handle: (res, req) => this.#handle(res, req, AUTH_REQUEST_PATH, 403, needsKey),
      },
    ];
  }

  #compile(policy: Policy): CompiledPolicy {
    const { knownNamespaces, responseWriter, responder } = this.#dependencies;
    const { namespace: name, cost } = policy;
    // It is there from now on, so that it has series of its own and can be given overrides.
    const namespace =
      knownNamespaces.get(name) ??
      knownNamespaces.create(name) ??
      knownNamespaces.makeUnregistered(name);
    const gatewayResponder = new GatewayResponder(
      policy,
      responseWriter,
      () => responder.isDraining,
    );
    const checks = policy.windows.map(({ limit, duration }) => {
      const terms = {
        limit,
        durationMs: duration,
        cost,
        rule: RULE.fixed,
        burst: NO_BURST,
        isAsync: false,
      };
      const override = { overrideId: undefined, needsOverrideId: false };
      return { namespace, identifier: '', ...override, ...terms };
    });
    const identityReader = new IdentityReader(policy);
    const policed: CompiledPolicy = {
      policy,
      namespace,
      identityReader,
      gatewayResponder,
      checks,
      completions: [],
    };
    policed.completions = RESPONSE_KINDS.map((way) => ({
      complete: (res, check, decision) => {
        this.#respond(res, policed, way, [{ check, decision }], decision.allowed);
      },
      fail: (res, error) => this.#respondToFailure(res, policed, way, error),
    }));
    return policed;
  }

  #handle(
    res: HttpResponse,
    req: HttpRequest,
    prefix: string,
    denialStatus: 403 | 429,
    needsKey: boolean,
  ): void {
    const { clock, responder } = this.#dependencies;
    const startedMs = clock.monotonicMs();
    const method = req.getCaseSensitiveMethod();
    const path = req.getUrl();
    // Behind the namespace there may be the path of the request, but for nginx.
    const slash = denialStatus === 429 ? path.indexOf('/', prefix.length) : -1;
    const end = slash < 0 ? path.length : slash;
    const isHead = method === 'HEAD';
    let policed: CompiledPolicy;
    try {
      policed = this.#findPolicy(req, path.slice(prefix.length, end), needsKey);
    } catch (error) {
      closeAfterUnreadBody(responder, res, readFraming(req));
      responder.sendError(res, error, { isHead });
      return;
    }
    const way = responseKindOf(denialStatus, isHead);
    try {
      const { identityReader } = policed;
      const framing = this.#headerReader.read(req, method, path.slice(end), identityReader.headers);
      closeAfterUnreadBody(responder, res, framing);
      if (framing.error !== undefined) {
        responder.sendError(res, framing.error, { isHead });
        return;
      }
      this.#decide(res, policed, way, identityReader.read(this.#headerReader), startedMs);
    } catch (error) {
      this.#respondToFailure(res, policed, way, error);
    }
  }

  #decide(
    res: HttpResponse,
    compiled: CompiledPolicy,
    kind: ResponseKind,
    identity: string | undefined,
    startedMs: number,
  ): void {
    const { counters, overrides, decider, clock, stats } = this.#dependencies;
    const { policy, namespace, checks, completions } = compiled;
    const identifier = identity ?? UNIDENTIFIED;
    if (identifier === UNIDENTIFIED) {
      namespace.decisionCounts[NAMESPACE_STAT.unidentifiedChecks]++;
      const admits = policy.missing === 'allow';
      if (policy.missing === 'deny' || (admits && identity === undefined)) {
        this.#respondUnidentified(res, compiled, kind, admits);
        stats.recordLatency(clock.monotonicMs() - startedMs);
        return;
      }
    }
    const id = counters.identify(namespace.hashState, identifier);
    const [check] = checks;
    resetCheck(compiled, check, identifier);
    const isOverridden = overrides.resolve(check, id);
    if (isOverridden) stats.increment(ACCEPTOR_STAT.overriddenChecks);
    if (isOverridden || checks.length === 1) {
      const asker = completions[kind.index];
      const decision = decider.decide(check, id, startedMs, res, asker);
      if (decision === undefined) return;
      asker.complete(res, check, decision);
    } else {
      this.#decideBatch(res, compiled, kind, id, startedMs);
    }
    stats.recordLatency(clock.monotonicMs() - startedMs);
  }

  #decideBatch(
    res: HttpResponse,
    compiled: CompiledPolicy,
    kind: ResponseKind,
    id: Identity,
    startedMs: number,
  ): void {
    const { counters, clock, stats } = this.#dependencies;
    const { namespace, checks, policy } = compiled;
    const { batch } = counters;
    batch.begin();
    for (const check of checks) batch.add(id, namespace.hashState[0], check);
    const admitted = batch.decide(clock.wallMs(startedMs));
    const decided = checks.map((check, number) => ({ check, decision: batch.decision(number) }));
    // One decision about one request, whatever became of each counter.
    for (const { decision } of decided.slice(1)) countOutcome(stats, decision.outcome);
    countDecision(stats, namespace, policy.cost, admitted, decided[0].decision.outcome);
    this.#respond(res, compiled, kind, decided, admitted);
  }

  #respond(
    res: HttpResponse,
    { policy, namespace, gatewayResponder }: CompiledPolicy,
    kind: ResponseKind,
    decisions: readonly WindowDecision[],
    isAllowed: boolean,
  ): void {
    const [{ check }] = decisions;
    const [{ limit, duration }] = policy.windows;
    // Of a decision that comes later no more is left than its check: an override shows in that.
    const isOwn =
      decisions.length === policy.windows.length &&
      check.limit === limit &&
      check.durationMs === duration;
    const quotas = decisions.map(({ check, decision }, window): Quota => {
      const { limit, durationMs } = check;
      const { remaining, reset, allowed: isAllowed } = decision;
      const name = isOwn ? gatewayResponder.quotaName(window) : namespace.name;
      return { name, limit, durationMs, remaining, reset, isAllowed };
    });
    const left = { quotas, nowMs: this.#dependencies.clock.nowMs(), isFromPolicy: isOwn };
    if (!isAllowed && policy.shadow) namespace.decisionCounts[NAMESPACE_STAT.shadowDenials]++;
    if (isAllowed || policy.shadow) gatewayResponder.allow(res, left);
    else gatewayResponder.deny(res, left, kind);
  }

  #respondUnidentified(
    res: HttpResponse,
    compiled: CompiledPolicy,
    kind: ResponseKind,
    isAllowed: boolean,
  ): void {
    const { policy, namespace, identityReader, gatewayResponder } = compiled;
    countDecision(this.#dependencies.stats, namespace, policy.cost, isAllowed, OUTCOME.decided);
    const left = gatewayResponder.quotasWithoutCheck(this.#dependencies.clock.nowMs(), isAllowed);
    if (!isAllowed && policy.shadow) namespace.decisionCounts[NAMESPACE_STAT.shadowDenials]++;
    if (isAllowed || policy.shadow) gatewayResponder.allow(res, left);
    else
      gatewayResponder.deny(
        res,
        left,
        kind,
        `no request is admitted without ${identityReader.requiredParts}`,
      );
  }

  /** Whatever was thrown, or could not be decided in time. */
  #respondToFailure(
    res: HttpResponse,
    { policy, gatewayResponder }: CompiledPolicy,
    kind: ResponseKind,
    error: unknown,
  ): void {
    const { stats, responder } = this.#dependencies;
    stats.increment(
      policy.onError === 'allow' ? ACCEPTOR_STAT.failuresAllowed : ACCEPTOR_STAT.failuresDenied,
    );
    responder.reportError(res, error);
    gatewayResponder.fail(res, kind);
  }

  /** @throws ApiError */
  #findPolicy(req: HttpRequest, name: string, needsKey: boolean): CompiledPolicy {
    if (needsKey) {
      const key = this.#dependencies.keyring.verifyBareKey(req.getHeader(WEIR_KEY));
      this.#dependencies.finder.requirePermission(key, 'limit', name);
    }
    const policed = this.#policiesByNamespace.get(name);
    if (policed !== undefined) return policed;
    throw new ApiError('NOT_FOUND', `there is no policy for the namespace ${formatValue(name)}`);
  }
}

/** A body is not read, and may never come: the next request would be taken for it. */
function closeAfterUnreadBody(responder: Responder, res: HttpResponse, framing: Framing): void {
  if (framing.closesConnection || framing.hasBody) responder.closeAfterResponse(res);
}

/** Whom a check is about, on the policy's terms: an override may have changed them for another. */
function resetCheck({ policy }: CompiledPolicy, check: WindowCheck, identifier: string): void {
  const [{ limit, duration }] = policy.windows;
  check.identifier = identifier;
  check.limit = limit;
  check.durationMs = duration;
  check.isAsync = false;
}
