/**
 * What a gateway is answered under one policy: an admission is a 200 without a body, for Envoy
 * takes nothing else and nginx keeps no other connection; a refusal is a 429 with a problem, or a
 * 403 without, which is all that nginx understands. Never a 5xx, whatever has failed.
 */

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

/** How a request wants to be answered. */
export interface ResponseKind {
  /** Its place in `WAYS`. */
  index: number;
  /** The status of a refusal. */
  denialStatus: 403 | 429;
  /** Whether a refusal has a body that says why: not on HEAD, nor with a 403. */
  hasBody: boolean;
}

/** All ways there are. */
export const RESPONSE_KINDS: readonly ResponseKind[] = [
  { index: 0, denialStatus: 403, hasBody: false },
  { index: 1, denialStatus: 429, hasBody: false },
  { index: 2, denialStatus: 429, hasBody: true },
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
/** Where weir has failed. */
const FAILURE_RETRY_S = 1;

export class GatewayResponder {
  readonly #policy: Policy;
  readonly #writer: ResponseWriter;
  readonly #isDraining: () => boolean;
  /** How answers begin where no override has changed the policy, in one piece each. */
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
    const own = windows.map(({ limit, duration }, i) => {
      return policyItem(this.#windowNames[i], limit, duration);
    });
    const begin = (status: keyof typeof STATUS_LINES) => {
      return fixedText(`${STATUS_LINES[status]}\r\nRateLimit-Policy: ${own.join(', ')}`);
    };
    this.#headPrefixes = { 200: begin(200), 403: begin(403), 429: begin(429) };
  }

  /** What there is before anything is counted, and for whom nothing is. */
  quotasWithoutCheck(nowMs: number, isAllowed: boolean): QuotaState {
    const quotas = this.#policy.windows.map(({ limit, duration }, window): Quota => {
      const reset = (Math.floor(nowMs / duration) + 1) * duration;
      const remaining = isAllowed ? limit : 0;
      return {
        name: this.quotaName(window),
        limit,
        durationMs: duration,
        remaining,
        reset,
        isAllowed,
      };
    });
    return { quotas, nowMs, isFromPolicy: true };
  }

  /** What a window is called in headers. */
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

  /** @param reason of whom there is more to say than when to come back */
  deny(res: HttpResponse, quotaState: QuotaState, kind: ResponseKind, reason?: string): void {
    const writeStatus = () => this.#writeQuotaHeaders(res, kind.denialStatus, quotaState);
    this.#deny(res, kind, writeStatus, retryAfter(quotaState), () =>
      quotaExceeded(quotaState, reason),
    );
  }

  /** Nothing is known of any quota: weir has failed. */
  fail(res: HttpResponse, kind: ResponseKind): void {
    const admits = this.#policy.onError === 'allow';
    const writeStatus = () => res.writeStatus(this.#headPrefixes[admits ? 200 : kind.denialStatus]);
    if (admits) this.#writer.respond(res, this.#isDraining(), writeStatus, EMPTY_BODY);
    else this.#deny(res, kind, writeStatus, FAILURE_RETRY_S, reducedCapacity);
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
    { denialStatus, hasBody }: ResponseKind,
    writeStatus: () => void,
    retryAfterS: number,
    problem: () => string,
  ): void {
    const writeHead = () => {
      writeStatus();
      res.writeHeader('Retry-After', String(retryAfterS)).writeHeader('Cache-Control', 'no-store');
      if (denialStatus === 429) res.writeHeader('Content-Type', 'application/problem+json');
    };
    const body = denialStatus === 429 ? problem() : EMPTY_BODY;
    this.#writer.respond(res, this.#isDraining(), writeHead, body, !hasBody);
  }
}
