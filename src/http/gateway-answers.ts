/**
 * What a gateway is answered under one policy: an admission is a 200 without a body, for Envoy
 * takes nothing else and nginx keeps no other connection; a refusal is a 429 with a problem, or a
 * 403 without, which is all that nginx understands. Never a 5xx, whatever has failed.
 */

import type { Policy } from '../policies/policy.ts';
import {
  type Left,
  legacyHeaders,
  policyItem,
  type Quota,
  quotaExceeded,
  quotaItems,
  reducedCapacity,
  retryAfter,
  tightest,
  windowName,
} from '../policies/quota.ts';
import type { Outlet } from './outlet.ts';
import { fixedText, type HttpResponse } from './uws.ts';

/** How a request wants to be answered. */
export interface Way {
  /** Its place in `WAYS`. */
  number: number;
  /** The status of a refusal. */
  refusal: 403 | 429;
  /** Whether a refusal has a body that says why: not on HEAD, nor with a 403. */
  hasBody: boolean;
}

/** All ways there are. */
export const WAYS: readonly Way[] = [
  { number: 0, refusal: 403, hasBody: false },
  { number: 1, refusal: 429, hasBody: false },
  { number: 2, refusal: 429, hasBody: true },
];

export function wayOf(refusal: Way['refusal'], isHead: boolean): Way {
  if (refusal === 403) return WAYS[0];
  return WAYS[isHead ? 1 : 2];
}

const STATUS = { 200: '200 OK', 403: '403 Forbidden', 429: '429 Too Many Requests' } as const;
const RATE_LIMIT = fixedText('RateLimit');
const NO_BODY = '';
/** Where weir has failed. */
const FAILED_RETRY_S = 1;

export class GatewayAnswers {
  readonly #policy: Policy;
  readonly #outlet: Outlet;
  readonly #isDraining: () => boolean;
  /** How answers begin where no override has changed the policy, in one piece each. */
  readonly #begin: Readonly<Record<keyof typeof STATUS, ArrayBuffer>>;
  readonly #names: readonly string[];

  constructor(policy: Policy, outlet: Outlet, isDraining: () => boolean) {
    const { namespace, windows } = policy;
    this.#policy = policy;
    this.#outlet = outlet;
    this.#isDraining = isDraining;
    this.#names = windows.map(({ duration }) => {
      return windows.length === 1 ? namespace : windowName(namespace, duration);
    });
    const own = windows.map(({ limit, duration }, i) => {
      return policyItem(this.#names[i], limit, duration);
    });
    const begin = (status: keyof typeof STATUS) => {
      return fixedText(`${STATUS[status]}\r\nRateLimit-Policy: ${own.join(', ')}`);
    };
    this.#begin = { 200: begin(200), 403: begin(403), 429: begin(429) };
  }

  /** What there is before anything is counted, and for whom nothing is. */
  untouched(nowMs: number, admits: boolean): Left {
    const quotas = this.#policy.windows.map(({ limit, duration }, window): Quota => {
      const reset = (Math.floor(nowMs / duration) + 1) * duration;
      const remaining = admits ? limit : 0;
      return { name: this.nameOf(window), limit, durationMs: duration, remaining, reset, admits };
    });
    return { quotas, nowMs, isOwn: true };
  }

  /** What a window is called in headers. */
  nameOf(window: number): string {
    return this.#names[window];
  }

  admit(res: HttpResponse, left: Left): void {
    if (this.#outlet.isClosing(res)) {
      this.#outlet.answer(res, true, () => this.#tellQuotas(res, 200, left), NO_BODY);
      return;
    }
    this.#tellQuotas(res, 200, left);
    this.#outlet.end(res, NO_BODY, this.#isDraining());
  }

  /** @param why of whom there is more to say than when to come back */
  refuse(res: HttpResponse, left: Left, way: Way, why?: string): void {
    const writeStatus = () => this.#tellQuotas(res, way.refusal, left);
    this.#refuse(res, way, writeStatus, retryAfter(left), () => quotaExceeded(left, why));
  }

  /** Nothing is known of any quota: weir has failed. */
  fail(res: HttpResponse, way: Way): void {
    const admits = this.#policy.onError === 'allow';
    const writeStatus = () => res.writeStatus(this.#begin[admits ? 200 : way.refusal]);
    if (admits) this.#outlet.answer(res, this.#isDraining(), writeStatus, NO_BODY);
    else this.#refuse(res, way, writeStatus, FAILED_RETRY_S, reducedCapacity);
  }

  #tellQuotas(res: HttpResponse, status: keyof typeof STATUS, left: Left): void {
    const { quotas, isOwn } = left;
    if (isOwn) res.writeStatus(this.#begin[status]);
    else {
      const items = quotas.map(({ name, limit, durationMs }) =>
        policyItem(name, limit, durationMs),
      );
      res.writeStatus(STATUS[status]).writeHeader('RateLimit-Policy', items.join(', '));
    }
    res.writeHeader(RATE_LIMIT, quotaItems(left));
    if (!this.#policy.legacyHeaders) return;
    for (const [name, value] of legacyHeaders(tightest(quotas))) res.writeHeader(name, value);
  }

  #refuse(
    res: HttpResponse,
    { refusal, hasBody }: Way,
    writeStatus: () => void,
    retryAfterS: number,
    problem: () => string,
  ): void {
    const writeHead = () => {
      writeStatus();
      res.writeHeader('Retry-After', String(retryAfterS)).writeHeader('Cache-Control', 'no-store');
      if (refusal === 429) res.writeHeader('Content-Type', 'application/problem+json');
    };
    const body = refusal === 429 ? problem() : NO_BODY;
    this.#outlet.answer(res, this.#isDraining(), writeHead, body, !hasBody);
  }
}
