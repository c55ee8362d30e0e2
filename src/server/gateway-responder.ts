/**
 * Sends the responses of one policy to gateways. Allowed is a 200 without a body: Envoy accepts
 * nothing else, and nginx keeps the connection open only then. Denied is a 429 with a problem, or a
 * 403 without, the only one that nginx understands. For a gRPC client a 429 has the headers of a
 * gRPC response instead of a problem. A failure never becomes a 5xx.
 */

import { NEVER } from '../core/decision.ts';
import { windowEndMs, windowOf } from '../engine/windows/window.ts';
import { GRPC_CONTENT_TYPE, GRPC_DENIED_MESSAGE, GRPC_DENIED_STATUS } from '../policies/grpc.ts';
import type { Policy } from '../policies/policy.ts';
import {
  legacyHeaders,
  policyItem,
  type Quota,
  type QuotaState,
  quotaExceeded,
  quotaItems,
  reducedCapacity,
  retryAfter,
  tightestQuota,
  windowName,
} from '../policies/quota.ts';
import type { ResponseWriter } from './response-writer.ts';
import { fixedText, type HttpResponse } from './uws.ts';

/** How a request is answered, by its route and method. */
export interface ResponseKind {
  /** Its index in RESPONSE_KINDS. */
  index: number;
  /** The status of a denial. */
  denialStatus: 403 | 429;
  /** Whether a denial has a body with the reason: not for HEAD, and not with a 403. */
  hasBody: boolean;
  /** Whether the client uses gRPC. */
  isGrpc?: true;
}

export const GRPC_RESPONSE: ResponseKind = {
  index: 3,
  denialStatus: 429,
  hasBody: false,
  isGrpc: true,
};
export const RESPONSE_KINDS: readonly ResponseKind[] = [
  { index: 0, denialStatus: 403, hasBody: false },
  { index: 1, denialStatus: 429, hasBody: false },
  { index: 2, denialStatus: 429, hasBody: true },
  GRPC_RESPONSE,
];

export function responseKindOf(
  denialStatus: ResponseKind['denialStatus'],
  isHead: boolean,
): ResponseKind {
  if (denialStatus === 403) return RESPONSE_KINDS[0];
  return RESPONSE_KINDS[isHead ? 1 : 2];
}

const STATUS_LINES = { 200: '200 OK', 403: '403 Forbidden', 429: '429 Too Many Requests' } as const;
const RATE_LIMIT = fixedText('RateLimit');
const EMPTY_BODY = '';
/** The Retry-After of a denial after a failure of weir. */
const FAILURE_RETRY_S = 1;

export class GatewayResponder {
  readonly #policy: Policy;
  readonly #writer: ResponseWriter;
  readonly #isDraining: () => boolean;
  /** The beginning of a response without an override, in one piece per status. */
  readonly #headPrefixes: Readonly<Record<keyof typeof STATUS_LINES, ArrayBuffer>>;
  readonly #windowNames: readonly string[];

  constructor(policy: Policy, writer: ResponseWriter, isDraining: () => boolean) {
    const { namespace, windows } = policy;
    this.#policy = policy;
    this.#writer = writer;
    this.#isDraining = isDraining;
    this.#windowNames = windows.map(({ duration }) => {
      return windows.length === 1 ? namespace : windowName(namespace, duration);
    });
    const policyItems = windows.map(({ limit, duration }, i) => {
      return policyItem(this.#windowNames[i], limit, duration);
    });
    const headPrefix = (status: keyof typeof STATUS_LINES) => {
      return fixedText(`${STATUS_LINES[status]}\r\nRateLimit-Policy: ${policyItems.join(', ')}`);
    };
    this.#headPrefixes = { 200: headPrefix(200), 403: headPrefix(403), 429: headPrefix(429) };
  }

  /** The quotas of a request that is not counted. */
  quotasWithoutCheck(nowMs: number, isAllowed: boolean): QuotaState {
    const quotas = this.#policy.windows.map((fields, window): Quota => {
      const { limit, duration, algorithm, burst = limit } = fields;
      const windowEnd = windowEndMs(windowOf(nowMs, duration), duration);
      // An unused GCRA counter is full now.
      const reset = algorithm === 'gcra' && isAllowed ? nowMs : windowEnd;
      const remaining = isAllowed ? burst : 0;
      return {
        name: this.quotaName(window),
        limit,
        durationMs: duration,
        remaining,
        reset,
        passesAt: NEVER,
        isAllowed,
      };
    });
    return { quotas, nowMs, isFromPolicy: true };
  }

  /** The name of a window in headers. */
  quotaName(window: number): string {
    return this.#windowNames[window];
  }

  allow(res: HttpResponse, quotaState: QuotaState): void {
    if (this.#writer.isClosing(res)) {
      this.#writer.respond(
        res,
        true,
        () => this.#writeQuotaHeaders(res, 200, quotaState),
        EMPTY_BODY,
      );
      return;
    }
    this.#writeQuotaHeaders(res, 200, quotaState);
    this.#writer.end(res, EMPTY_BODY, this.#isDraining());
  }

  /** Without a quota: no counter was read. */
  allowUncounted(res: HttpResponse): void {
    const writeStatus = () => res.writeStatus(this.#headPrefixes[200]);
    this.#writer.respond(res, this.#isDraining(), writeStatus, EMPTY_BODY);
  }

  /** @param reason for the body of a denial that has another cause than the quota */
  deny(res: HttpResponse, quotaState: QuotaState, kind: ResponseKind, reason?: string): void {
    const writeStatus = () => this.#writeQuotaHeaders(res, kind.denialStatus, quotaState);
    this.#deny(res, kind, writeStatus, retryAfter(quotaState), () =>
      quotaExceeded(quotaState, reason),
    );
  }

  /** Weir has failed, so no quota is known: the policy's `onError` decides. */
  fail(res: HttpResponse, kind: ResponseKind): void {
    if (this.#policy.onError === 'allow') {
      this.allowUncounted(res);
      return;
    }
    const writeStatus = () => res.writeStatus(this.#headPrefixes[kind.denialStatus]);
    this.#deny(res, kind, writeStatus, FAILURE_RETRY_S, reducedCapacity);
  }

  #writeQuotaHeaders(
    res: HttpResponse,
    status: keyof typeof STATUS_LINES,
    quotaState: QuotaState,
  ): void {
    const { quotas, isFromPolicy } = quotaState;
    if (isFromPolicy) res.writeStatus(this.#headPrefixes[status]);
    else {
      const items = quotas.map(({ name, limit, durationMs }) =>
        policyItem(name, limit, durationMs),
      );
      res.writeStatus(STATUS_LINES[status]).writeHeader('RateLimit-Policy', items.join(', '));
    }
    res.writeHeader(RATE_LIMIT, quotaItems(quotaState));
    if (!this.#policy.legacyHeaders) return;
    for (const [name, value] of legacyHeaders(tightestQuota(quotas))) res.writeHeader(name, value);
  }

  #deny(
    res: HttpResponse,
    { denialStatus, hasBody, isGrpc }: ResponseKind,
    writeStatus: () => void,
    retryAfterS: number | undefined,
    problem: () => string,
  ): void {
    const writeHead = () => {
      writeStatus();
      if (retryAfterS !== undefined) res.writeHeader('Retry-After', String(retryAfterS));
      res.writeHeader('Cache-Control', 'no-store');
      if (isGrpc) {
        res.writeHeader('Content-Type', GRPC_CONTENT_TYPE);
        res.writeHeader('grpc-status', GRPC_DENIED_STATUS);
        res.writeHeader('grpc-message', GRPC_DENIED_MESSAGE);
      } else if (denialStatus === 429) {
        res.writeHeader('Content-Type', 'application/problem+json');
      }
    };
    const body = denialStatus === 429 && !isGrpc ? problem() : EMPTY_BODY;
    this.#writer.respond(res, this.#isDraining(), writeHead, body, !hasBody);
  }
}
