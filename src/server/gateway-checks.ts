/**
 * The routes of gateways: requests of any method. The path names a policy, which defines the
 * limits. The query may name the gateway. The policy and the gateway determine which headers
 * identify the client. weir does not read a body, and one may never arrive: if a request announces
 * a body, weir closes the connection after the response.
 *
 * A request that the policy skips is allowed at once, without a decision: no counter, no event and
 * no statistics but a metric know of it.
 *
 * The engine decides the windows of a policy as one batch. An override that applies to the client
 * replaces all of them. A failure is answered as the policy says, never with a 5xx; only a request
 * for an unknown policy or gateway, or without a required key, gets an error of the API.
 */

import type { NamespaceFinder } from '../api/common/namespace-finder.ts';
import { AUTH_REQUEST_PATH, CHECK_PATH } from '../api/common/paths.ts';
import type { Keyring } from '../auth/keyring.ts';
import type { Check } from '../core/check.ts';
import type { Decision } from '../core/decision.ts';
import { formatValue } from '../core/describe.ts';
import { ApiError } from '../core/errors.ts';
import { type Hasher, type MutableIdentity, newIdentity } from '../core/hash.ts';
import type { Namespace } from '../core/namespace.ts';
import { DEFAULT_RULE, NO_BURST, RULE } from '../core/window-rules.ts';
import { type DecisionRecorder, eventOf } from '../decision-thread/decision-recorder.ts';
import type { BatchCompletion, BatchDecision, Completion, Engine } from '../engine/engine.ts';
import type { RequestDetails } from '../events/decision-event.ts';
import { detailsOfHead } from '../events/request-details.ts';
import {
  type ActiveOverrides,
  NOT_OVERRIDDEN,
  type OverridableCheck,
} from '../overrides/active.ts';
import { type CheckReader, CONTENT_TYPE, GatewayReaders } from '../policies/gateway-readers.ts';
import { isGrpc } from '../policies/grpc.ts';
import { UNIDENTIFIED } from '../policies/identifier.ts';
import type { Policy } from '../policies/policy.ts';
import type { Quota } from '../policies/quota.ts';
import type { KnownNamespaces } from '../registry/known-namespaces.ts';
import type { Clock } from '../shared-memory/clock.ts';
import { ACCEPTOR_STAT, type AcceptorStats, NAMESPACE_STAT } from '../shared-memory/stats.ts';
import type { DeferredResponses } from './deferred-responses.ts';
import { type Framing, readFraming } from './framing.ts';
import {
  GatewayResponder,
  GRPC_RESPONSE,
  RESPONSE_KINDS,
  type ResponseKind,
  responseKindOf,
} from './gateway-responder.ts';
import { HeaderReader } from './header-reader.ts';
import type { Responder } from './responder.ts';
import type { ResponseWriter } from './response-writer.ts';
import type { Route } from './route.ts';
import type { Turns } from './turns.ts';
import { fixedText, type HttpRequest, type HttpResponse } from './uws.ts';

interface GatewayCheckDependencies {
  keyring: Keyring;
  knownNamespaces: KnownNamespaces;
  finder: NamespaceFinder;
  hasher: Hasher;
  overrides: ActiveOverrides;
  engine: Engine;
  clock: Clock;
  stats: AcceptorStats;
  recorder: DecisionRecorder;
  deferredResponses: DeferredResponses;
  turns: Turns;
  responseWriter: ResponseWriter;
  /** Of v1. */
  responder: Responder;
}

/** The check of a window of a policy. It is reused for all requests. */
interface WindowCheck extends OverridableCheck {
  identity: MutableIdentity;
  identifier: string;
}

interface PolicyCompletion {
  single: Completion<HttpResponse>;
  batch: BatchCompletion<HttpResponse>;
}

interface CompiledPolicy {
  policy: Policy;
  namespace: Namespace;
  readers: GatewayReaders;
  gatewayResponder: GatewayResponder;
  /** One for each window, all with one identity. */
  checks: readonly WindowCheck[];
  /** By the index of a response kind. */
  completions: readonly PolicyCompletion[];
}

const WEIR_KEY = fixedText('x-weir-key');
const TRACEPARENT = fixedText('traceparent');

export class GatewayCheckHandler {
  readonly #dependencies: GatewayCheckDependencies;
  readonly #headerReader = new HeaderReader();
  #policiesByNamespace: ReadonlyMap<string, CompiledPolicy> = new Map();

  constructor(dependencies: GatewayCheckDependencies) {
    this.#dependencies = dependencies;
  }

  /** Replaces all policies. */
  activate(policies: readonly Policy[]): void {
    this.#policiesByNamespace = new Map(
      policies.map((policy) => [policy.namespace, this.#compile(policy)]),
    );
  }

  /**
   * Namespaces were deleted. One of them may be that of a policy, if another machine has deleted it
   * whose configuration file has no such policy. Or there is room for that of a policy now.
   */
  renewNamespaces(): void {
    const compiled = [...this.#policiesByNamespace.values()];
    if (!compiled.some(({ namespace }) => namespace.isTransient)) return;
    this.activate(compiled.map(({ policy }) => policy));
  }

  /** @param needsKey whether the gateway must send an API key; not on the port for gateways */
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
    const { knownNamespaces, responseWriter, responder, recorder } = this.#dependencies;
    const { namespace: name, cost } = policy;
    // Created now, so that it has its own metrics and can have overrides before its first check.
    const namespace =
      knownNamespaces.get(name) ??
      knownNamespaces.create(name) ??
      knownNamespaces.makeUnregistered(name);
    const gatewayResponder = new GatewayResponder(
      policy,
      responseWriter,
      () => responder.isDraining,
    );
    const identity = newIdentity();
    const checks = policy.windows.map((window): WindowCheck => {
      const { limit, duration: durationMs, algorithm = DEFAULT_RULE, burst = NO_BURST } = window;
      const terms = { limit, durationMs, cost, rule: RULE[algorithm], burst, isAsync: false };
      const override = { overrideId: undefined, needsOverrideId: recorder.hasEvents };
      return { namespace, identity, identifier: '', ...terms, ...override };
    });
    const compiled: CompiledPolicy = {
      policy,
      namespace,
      readers: new GatewayReaders(policy),
      gatewayResponder,
      checks,
      completions: [],
    };
    compiled.completions = RESPONSE_KINDS.map((kind) => this.#completionsOf(compiled, kind));
    return compiled;
  }

  #completionsOf(compiled: CompiledPolicy, kind: ResponseKind): PolicyCompletion {
    const { deferredResponses, recorder } = this.#dependencies;
    const fail = (res: HttpResponse, error: unknown) => {
      deferredResponses.fail(res, () => this.#respondToFailure(res, compiled, kind, error));
    };
    return {
      single: {
        complete: (res, startedMs, check, decision) => {
          this.#record(compiled, check, decision, recorder.keptDetails(res));
          deferredResponses.complete(res, startedMs, () => {
            this.#respondSingle(res, compiled, kind, check, decision);
          });
        },
        fail,
      },
      batch: {
        complete: (res, startedMs, checks, { allowed, decisions }) => {
          const decided = { allowed, decisions };
          this.#recordBatch(compiled, checks, decided, recorder.keptDetails(res));
          deferredResponses.complete(res, startedMs, () => {
            this.#respondBatch(res, compiled, kind, decisions, allowed);
          });
        },
        fail,
      },
    };
  }

  #handle(
    res: HttpResponse,
    req: HttpRequest,
    prefix: string,
    denialStatus: 403 | 429,
    needsKey: boolean,
  ): void {
    const { clock, responder, recorder, turns } = this.#dependencies;
    const startedMs = clock.monotonicMs();
    const method = req.getCaseSensitiveMethod();
    const path = req.getUrl();
    const slash = prefix === CHECK_PATH ? path.indexOf('/', prefix.length) : -1;
    const end = slash < 0 ? path.length : slash;
    const isHead = method === 'HEAD';
    let compiled: CompiledPolicy;
    let reader: CheckReader;
    try {
      compiled = this.#findPolicy(req, path.slice(prefix.length, end), needsKey);
      const { readers } = compiled;
      reader = slash < 0 ? readers.forQuery(req.getQuery()) : readers.forPath();
    } catch (error) {
      closeAfterUnreadBody(responder, res, readFraming(req));
      responder.sendError(res, error, { isHead });
      return;
    }
    let kind = responseKindOf(denialStatus, isHead);
    const details = recorder.samples() ? detailsOfHead(req.getHeader(TRACEPARENT)) : undefined;
    try {
      const framing = this.#headerReader.read(req, method, path.slice(end), reader.headers);
      closeAfterUnreadBody(responder, res, framing);
      if (framing.error !== undefined) {
        responder.sendError(res, framing.error, { isHead });
        return;
      }
      if (reader.returnsDenials && isGrpc(this.#headerReader.header(CONTENT_TYPE))) {
        kind = GRPC_RESPONSE;
      }
      if (reader.skip?.skips(this.#headerReader)) {
        compiled.namespace.decisionCounts[NAMESPACE_STAT.skippedChecks]++;
        compiled.gatewayResponder.allowUncounted(res);
        return;
      }
      const identifier = reader.identifier.read(this.#headerReader);
      if (turns.isFull)
        this.#wait(res, compiled.policy.namespace, kind, identifier, details, isHead);
      else this.#decide(res, compiled, kind, identifier, startedMs, details);
    } catch (error) {
      this.#respondToFailure(res, compiled, kind, error);
    }
  }

  /** Decides a request in a later turn, by the policy that is active then. */
  #wait(
    res: HttpResponse,
    namespace: string,
    kind: ResponseKind,
    identifier: string | undefined,
    details: RequestDetails | undefined,
    isHead: boolean,
  ): void {
    const { clock, responder, turns } = this.#dependencies;
    const decide = () => {
      const compiled = this.#policiesByNamespace.get(namespace);
      if (compiled === undefined) {
        responder.sendError(res, policyNotFound(namespace), { isHead });
        return;
      }
      try {
        this.#decide(res, compiled, kind, identifier, clock.monotonicMs(), details);
      } catch (error) {
        this.#respondToFailure(res, compiled, kind, error);
      }
    };
    turns.wait(res, { run: () => res.cork(decide), drop: () => {} });
  }

  #decide(
    res: HttpResponse,
    compiled: CompiledPolicy,
    kind: ResponseKind,
    givenIdentifier: string | undefined,
    startedMs: number,
    details: RequestDetails | undefined,
  ): void {
    const { hasher, overrides, engine, clock, stats } = this.#dependencies;
    const { policy, namespace, checks } = compiled;
    const identifier = givenIdentifier ?? UNIDENTIFIED;
    // Without an identifier `missing` decides. An invalid one is counted unless that is deny.
    if (identifier === UNIDENTIFIED) {
      namespace.decisionCounts[NAMESPACE_STAT.unidentifiedChecks]++;
      const isAllowed = policy.missing === 'allow';
      if (policy.missing === 'deny' || (isAllowed && givenIdentifier === undefined)) {
        this.#respondUnidentified(res, compiled, kind, isAllowed, details);
        stats.recordLatency(clock.monotonicMs() - startedMs);
        return;
      }
    }
    const [check] = checks;
    resetCheck(compiled, check, identifier);
    hasher.hash(namespace.hashState, identifier, check.identity);
    const usageRow = overrides.resolve(check, check.identity);
    const isOverridden = usageRow !== NOT_OVERRIDDEN;
    if (isOverridden) {
      stats.increment(ACCEPTOR_STAT.overriddenChecks);
      if (!policy.shadow) stats.usage.record(usageRow, startedMs);
    }
    const { single, batch } = compiled.completions[kind.index];
    if (isOverridden || checks.length === 1) {
      const decision = engine.decide(check, startedMs, res, single);
      if (decision === undefined) {
        this.#defer(res, details);
        return;
      }
      this.#record(compiled, check, decision, details);
      this.#respondSingle(res, compiled, kind, check, decision);
    } else {
      const decision = engine.decideBatch(checks, startedMs, res, batch);
      if (decision === undefined) {
        this.#defer(res, details);
        return;
      }
      this.#recordBatch(compiled, checks, decision, details);
      this.#respondBatch(res, compiled, kind, decision.decisions, decision.allowed);
    }
    stats.recordLatency(clock.monotonicMs() - startedMs);
  }

  #defer(res: HttpResponse, details: RequestDetails | undefined): void {
    const { recorder, deferredResponses } = this.#dependencies;
    if (details !== undefined) recorder.keepDetails(res, details);
    deferredResponses.defer(res);
  }

  /** Records the one decision on a request that one window has made. */
  #record(
    compiled: CompiledPolicy,
    check: Check,
    decision: Decision,
    details: RequestDetails | undefined,
  ): void {
    const { recorder } = this.#dependencies;
    const { allowed } = decision;
    const records = recorder.countText(check, compiled.policy.cost, allowed, details);
    if (records !== 0) this.#recordEvent(records, compiled, check, decision, details);
  }

  /** Records the one decision on a request, however many windows it was checked in. */
  #recordBatch(
    compiled: CompiledPolicy,
    checks: readonly Check[],
    { allowed, decisions }: BatchDecision,
    details: RequestDetails | undefined,
  ): void {
    const { recorder } = this.#dependencies;
    // Only the first check of a request is given its identifier.
    const [{ identifier }] = checks;
    const records = recorder.countText(checks[0], compiled.policy.cost, allowed, details);
    if (records === 0) return;
    const window = decidingWindow(decisions, checks.length);
    const decision = { ...decisions[window], allowed };
    this.#recordEvent(records, compiled, { ...checks[window], identifier }, decision, details);
  }

  #recordEvent(
    records: number,
    { policy }: CompiledPolicy,
    check: Check,
    decision: Decision,
    details: RequestDetails | undefined,
  ): void {
    const { allowed } = decision;
    const event = eventOf(check, decision, allowed, details);
    event.policy = policy.namespace;
    event.isShadow = policy.shadow && !allowed;
    this.#dependencies.recorder.record(records, event);
  }

  #respondSingle(
    res: HttpResponse,
    compiled: CompiledPolicy,
    kind: ResponseKind,
    { limit, durationMs }: Check,
    { remaining, reset, passesAt, allowed: isAllowed }: Decision,
  ): void {
    const { policy, namespace, gatewayResponder } = compiled;
    const [window] = policy.windows;
    // A check does not say that an override applies: it shows as another limit or duration.
    const isFromPolicy =
      policy.windows.length === 1 && limit === window.limit && durationMs === window.duration;
    const name = isFromPolicy ? gatewayResponder.quotaName(0) : namespace.name;
    const quotas = [{ name, limit, durationMs, remaining, reset, passesAt, isAllowed }];
    this.#respond(res, compiled, kind, quotas, isFromPolicy, isAllowed);
  }

  #respondBatch(
    res: HttpResponse,
    compiled: CompiledPolicy,
    kind: ResponseKind,
    decisions: readonly Decision[],
    isAllowed: boolean,
  ): void {
    const { policy, gatewayResponder } = compiled;
    const quotas = policy.windows.map(({ limit, duration }, window): Quota => {
      const { remaining, reset, passesAt, allowed: isAllowed } = decisions[window];
      const name = gatewayResponder.quotaName(window);
      return { name, limit, durationMs: duration, remaining, reset, passesAt, isAllowed };
    });
    this.#respond(res, compiled, kind, quotas, true, isAllowed);
  }

  #respond(
    res: HttpResponse,
    { policy, namespace, gatewayResponder }: CompiledPolicy,
    kind: ResponseKind,
    quotas: Quota[],
    isFromPolicy: boolean,
    isAllowed: boolean,
  ): void {
    const quotaState = { quotas, nowMs: this.#dependencies.clock.nowMs(), isFromPolicy };
    if (!isAllowed && policy.shadow) namespace.decisionCounts[NAMESPACE_STAT.shadowDenials]++;
    if (isAllowed || policy.shadow) gatewayResponder.allow(res, quotaState);
    else gatewayResponder.deny(res, quotaState, kind);
  }

  #respondUnidentified(
    res: HttpResponse,
    compiled: CompiledPolicy,
    kind: ResponseKind,
    isAllowed: boolean,
    details: RequestDetails | undefined,
  ): void {
    const { policy, namespace, readers, gatewayResponder } = compiled;
    const { clock, recorder } = this.#dependencies;
    // It has no identifier that could be counted.
    const records = recorder.countUnidentified(namespace, policy.cost, isAllowed, details);
    if (records !== 0) {
      recorder.record(records, {
        namespace,
        identifier: undefined,
        identity: undefined,
        isAllowed,
        cost: policy.cost,
        window: undefined,
        overrideId: undefined,
        policy: namespace.name,
        isShadow: policy.shadow && !isAllowed,
        request: details ?? { traceparent: undefined },
      });
    }
    const quotaState = gatewayResponder.quotasWithoutCheck(clock.nowMs(), isAllowed);
    if (!isAllowed && policy.shadow) namespace.decisionCounts[NAMESPACE_STAT.shadowDenials]++;
    if (isAllowed || policy.shadow) {
      gatewayResponder.allow(res, quotaState);
      return;
    }
    const reason = `a request without ${readers.requiredParts} is denied`;
    gatewayResponder.deny(res, quotaState, kind, reason);
  }

  /** Responds as the policy says where an error was thrown, or the decision came too late. */
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
    const compiled = this.#policiesByNamespace.get(name);
    if (compiled !== undefined) return compiled;
    throw policyNotFound(name);
  }
}

function policyNotFound(namespace: string): ApiError {
  const message = `there is no policy for the namespace ${formatValue(namespace)}`;
  return new ApiError('NOT_FOUND', message);
}

/** The body is not read, and may never come: it would be taken for the next request. */
function closeAfterUnreadBody(responder: Responder, res: HttpResponse, framing: Framing): void {
  if (framing.closesConnection || framing.hasBody) responder.closeAfterResponse(res);
}

/** The window that an event shows: the first that denies, else the one with fewest tokens left. */
function decidingWindow(decisions: readonly Decision[], count: number): number {
  let window = 0;
  for (let other = 1; other < count; other++) {
    const [a, b] = [decisions[window], decisions[other]];
    if (a.allowed && (!b.allowed || b.remaining < a.remaining)) window = other;
  }
  return window;
}

/** Sets the identifier, and the terms of the policy: an override may have replaced them before. */
function resetCheck({ policy }: CompiledPolicy, check: WindowCheck, identifier: string): void {
  const [{ limit, duration }] = policy.windows;
  check.identifier = identifier;
  check.limit = limit;
  check.durationMs = duration;
  check.isAsync = false;
  check.overrideId = undefined;
}
