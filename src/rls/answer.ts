/**
 * The answer to a call, from what was decided about its descriptors. The overall code follows the
 * rules of envoyproxy/ratelimit: one limit that is over denies the request, and quotas deny it if
 * all of them are over.
 */

import {
  policyItem,
  type Quota,
  quotaItems,
  retryAfter,
  tightestQuota,
} from '../policies/quota.ts';
import { type Call, CODE, type PlannedDescriptor } from './call.ts';
import type { RlsSettings } from './config/settings.ts';
import { passedMetadata } from './dynamic-metadata.ts';

export interface Answer {
  message: Buffer;
  overallCode: number;
  /** Whether a limit denies the request. In shadow mode the code is OK all the same. */
  isOver: boolean;
}

export function answerOf(call: Call, settings: RlsSettings, nowMs: number): Answer {
  const { writer } = call.receiver;
  writer.begin();
  for (let number = 0; number < call.count; number++) {
    const { kind, code, limit, remaining, resetMs } = call.at(number);
    const hasWindow = kind === 'check' || kind === 'refund';
    const seconds = hasWindow ? secondsUntil(resetMs, nowMs) : undefined;
    writer.addStatus(code, hasWindow ? limit : undefined, remaining, seconds);
  }
  const isOver = isOverLimit(call, settings.isQuota);
  const overallCode = isOver && !settings.isShadow ? CODE.OVER_LIMIT : CODE.OK;
  const isDenied = overallCode === CODE.OVER_LIMIT;
  if (settings.headers !== 'none') addHeaders(call, settings, isDenied, nowMs);
  if (isDenied) addBody(call);
  if (call.metadata !== undefined) {
    writer.setDynamicMetadata({ ...call.metadata, ...passedMetadata(call) });
  }
  return { message: writer.finish(overallCode), overallCode, isOver };
}

function isOverLimit(call: Call, isQuotaMode: boolean): boolean {
  let quotas = 0;
  let quotasOver = 0;
  let isOver = false;
  for (let number = 0; number < call.count; number++) {
    const planned = call.at(number);
    if (planned.kind === 'unlimited') continue;
    const isQuota = isQuotaMode || planned.isQuota;
    if (isQuota) quotas++;
    if (planned.code !== CODE.OVER_LIMIT) continue;
    if (isQuota) quotasOver++;
    else isOver = true;
  }
  return isOver || (quotas > 0 && quotas === quotasOver);
}

/** Rounded up, at least 1: a client that waits so long finds another window. */
function secondsUntil(ms: number, nowMs: number): number {
  return Math.max(1, Math.ceil((ms - nowMs) / 1_000));
}

function addHeaders(call: Call, settings: RlsSettings, isDenied: boolean, nowMs: number): void {
  if (settings.headers === 'legacy') addLegacyHeaders(call, settings.isQuota, nowMs);
  else addIetfHeaders(call, isDenied, nowMs);
}

/** As envoyproxy/ratelimit: those of the last limit that is over, else of that with least left. */
function addLegacyHeaders(call: Call, isQuotaMode: boolean, nowMs: number): void {
  let chosen: PlannedDescriptor | undefined;
  let least = Number.POSITIVE_INFINITY;
  for (let number = 0; number < call.count; number++) {
    const planned = call.at(number);
    if (planned.kind !== 'check' && planned.kind !== 'refund') continue;
    if (planned.remaining < least) {
      chosen = planned;
      least = planned.remaining;
    }
    if (planned.code === CODE.OVER_LIMIT && !isQuotaMode && !planned.isQuota) {
      chosen = planned;
      least = 0;
    }
  }
  if (chosen === undefined) return;
  const { writer } = call.receiver;
  writer.addResponseHeader('RateLimit-Limit', String(chosen.check.limit));
  writer.addResponseHeader('RateLimit-Remaining', String(chosen.remaining));
  writer.addResponseHeader('RateLimit-Reset', String(secondsUntil(chosen.resetMs, nowMs)));
}

function addIetfHeaders(call: Call, isDenied: boolean, nowMs: number): void {
  /** By name: of the descriptors of one limit, that with the least left. */
  const byName = new Map<string, Quota>();
  for (let number = 0; number < call.count; number++) {
    const planned = call.at(number);
    if (planned.kind !== 'check') continue;
    const { check, remaining, resetMs: reset, passesAt, code } = planned;
    const { limit, durationMs } = check;
    const name = quotaName(planned);
    const isAllowed = code !== CODE.OVER_LIMIT;
    // A look at a used limit is over, and no time is known at which it is not.
    const until = isAllowed || passesAt === 0 ? reset : passesAt;
    const quota = { name, limit, durationMs, remaining, reset, passesAt: until, isAllowed };
    const known = byName.get(name);
    byName.set(name, known === undefined ? quota : tightestQuota([known, quota]));
  }
  const quotas = [...byName.values()];
  if (quotas.length === 0) return;
  const { writer } = call.receiver;
  const state = { quotas, nowMs, isFromPolicy: true };
  const policies = quotas.map(({ name, limit, durationMs }) => policyItem(name, limit, durationMs));
  writer.addResponseHeader('RateLimit-Policy', policies.join(', '));
  writer.addResponseHeader('RateLimit', quotaItems(state));
  const seconds = isDenied ? retryAfter(state) : undefined;
  if (seconds !== undefined) writer.addResponseHeader('Retry-After', String(seconds));
}

/** A header has only visible ASCII characters, and none that would need an escape. */
function quotaName({ rule, path }: PlannedDescriptor): string {
  return (rule?.limit?.name ?? path).replaceAll(/[^ -~]|["\\]/g, '_');
}

/** The body of the first limit that is over and has one. */
function addBody(call: Call): void {
  for (let number = 0; number < call.count; number++) {
    const { code, rule } = call.at(number);
    const { rawBody, contentType } = rule?.limit ?? {};
    if (code !== CODE.OVER_LIMIT || rawBody === undefined) continue;
    const { writer } = call.receiver;
    writer.setRawBody(rawBody);
    if (contentType !== undefined) writer.addResponseHeader('Content-Type', contentType);
    return;
  }
}
