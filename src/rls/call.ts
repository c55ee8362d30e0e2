/**
 * One call of the rate limit service: what was found about each of its descriptors, and the
 * receiver of its answer. Calls are used again. The request is not: the memory of its reader
 * belongs to the next request, and a decision may come later.
 */

import { type MutableIdentity, newIdentity } from '../core/hash.ts';
import type { JsonObject } from '../core/json.ts';
import type { Namespace } from '../core/namespace.ts';
import { NO_BURST, RULE } from '../core/window-rules.ts';
import type { RequestDetails } from '../events/decision-event.ts';
import type { OverridableCheck } from '../overrides/active.ts';
import type { Rule } from './config/configuration.ts';
import type { GrpcError } from './transport/status.ts';
import type { ResponseLimit } from './wire/response.ts';

/** Writes an answer in one encoding. `wire/response.ts` documents its functions. */
export interface AnswerWriter {
  begin(): void;
  addStatus(
    code: number,
    limit: ResponseLimit | undefined,
    remaining: number,
    resetSeconds: number | undefined,
  ): void;
  addResponseHeader(key: string, value: string): void;
  setRawBody(text: string): void;
  setDynamicMetadata(value: JsonObject): void;
  finish(overallCode: number): Buffer;
}

/** Takes the answer of a call. */
export interface AnswerReceiver {
  readonly writer: AnswerWriter;
  /** @param message in memory that the next answer of the writer overwrites */
  respond(message: Buffer, overallCode: number): void;
  fail(error: GrpcError): void;
}

/** The enum `RateLimitResponse.Code`. 0 is UNKNOWN, with which Envoy lets a request pass. */
export const CODE = { OK: 1, OVER_LIMIT: 2 } as const;

/** What is decided about a descriptor. */
export type DescriptorKind = 'no limit' | 'unlimited' | 'check' | 'refund';

interface RlsCheck extends OverridableCheck {
  identity: MutableIdentity;
  identifier: string;
  needsOverrideId: boolean;
}

export class PlannedDescriptor {
  kind: DescriptorKind = 'no limit';
  /** Undefined where none matched, and for a descriptor with its own limit. */
  rule: Rule | undefined;
  /** The path of its metrics. */
  path = '';
  /** Of a refund: tokens to return. Of a check: tokens to count, 0 for a look. */
  hits = 0;
  isShadow = false;
  isQuota = false;
  /** Set by `checkIn`. */
  check!: RlsCheck;
  /** Undefined where no unit has the window. */
  limit: ResponseLimit | undefined;
  isOver = false;
  /** What the answer says: a limit in shadow mode is never over. */
  code = 0;
  remaining = 0;
  resetMs = 0;
  /** Of a check over its limit. */
  passesAt = 0;

  /** No limit applies. */
  clear(): void {
    this.kind = 'no limit';
    this.rule = undefined;
    this.isShadow = false;
    this.isQuota = false;
    this.isOver = false;
    this.limit = undefined;
  }

  /** The check of this descriptor, with what it had for an earlier request. */
  checkIn(namespace: Namespace): RlsCheck {
    this.check ??= {
      namespace,
      identity: newIdentity(),
      ...{ identifier: '', limit: 0, durationMs: 0, cost: 0, rule: RULE.fixed, burst: NO_BURST },
      ...{ isAsync: false, overrideId: undefined, needsOverrideId: false },
    };
    this.check.namespace = namespace;
    return this.check;
  }
}

/** The receiver of a call that has ended. */
const ENDED: AnswerReceiver = {
  get writer(): AnswerWriter {
    throw new Error('the call has ended');
  },
  respond: () => {},
  fail: () => {},
};

export class Call {
  /** Set from `begin` to `end`. */
  receiver!: AnswerReceiver;
  startedMs = 0;
  /** Undefined unless its decisions may become events. */
  details: RequestDetails | undefined;
  /** The part of the dynamic metadata that repeats the request; undefined where it is off. */
  metadata: JsonObject | undefined;
  count = 0;
  /** The checks that the engine decides, in the order of their descriptors. */
  readonly checks: RlsCheck[] = [];
  readonly #descriptors: PlannedDescriptor[] = [];

  begin(receiver: AnswerReceiver, startedMs: number, details: RequestDetails | undefined): void {
    this.receiver = receiver;
    this.startedMs = startedMs;
    this.details = details;
    this.metadata = undefined;
    this.count = 0;
    this.checks.length = 0;
  }

  /** Lets go of what belongs to the request: it may be the last one for long. */
  end(): void {
    this.receiver = ENDED;
    this.metadata = undefined;
  }

  /** The next descriptor, to which no limit applies yet. */
  add(): PlannedDescriptor {
    const number = this.count++;
    this.#descriptors[number] ??= new PlannedDescriptor();
    const planned = this.#descriptors[number];
    planned.clear();
    return planned;
  }

  at(number: number): PlannedDescriptor {
    return this.#descriptors[number];
  }
}
