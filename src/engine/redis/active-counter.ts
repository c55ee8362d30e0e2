/**
 * A counter with something to tell or to ask Redis: the checks that wait for tokens, and what else
 * its next message is for. It lives on the worker's heap while there is something; what must not
 * be lost is in its slot.
 */

import type { Identity } from '../../core/hash.ts';
import { durationOfKey } from '../windows/registry.ts';
import type { QueueEntry, ReplyDecision } from './queue-consumer.ts';
import type { CounterAnswer, CounterMessage, TokenCheck } from './scripts/protocol.ts';

/** Where the checks of a counter come from, and their decisions go to. */
export interface CheckSource {
  claim(number: number): boolean;
  unclaim(number: number): void;
  isOpen(number: number): boolean;
  reply(number: number, decision: ReplyDecision): void;
}

/** A check that waits for tokens. */
export interface WaitingCheck {
  readonly source: CheckSource;
  readonly entry: QueueEntry;
  readonly check: TokenCheck;
  /** Whether its tokens are reserved for a batch. */
  readonly isReserve: boolean;
  /** Whether a message has carried it. */
  wasSent: boolean;
  /** When the worker has read it, monotonic ms. */
  readonly queuedMs: number;
  /** When it was first denied without proof, monotonic ms; 0: it was not. */
  parkedMs: number;
}

/** A refund, or a recall of all leases before an inspection. */
export interface Correction {
  readonly refund: number;
  /** NO_WINDOW without a refund. */
  readonly refundWindow: number;
  readonly recalls: boolean;
  readonly resolve: (answer: CounterAnswer | undefined) => void;
}

/** A message under way. */
export interface SentMessage {
  readonly message: CounterMessage;
  readonly checks: readonly WaitingCheck[];
  readonly correction: Correction | undefined;
  /** Whether it returns the lease, of which pending batches may keep some. */
  readonly isReturn: boolean;
  /** Called with whether Redis has got the message. */
  readonly listeners: readonly ((isDone: boolean) => void)[];
}

export class ActiveCounter {
  readonly name: string;
  readonly identity: Identity;
  readonly key: number;
  readonly durationMs: number;
  readonly bucket: number;
  namespaceTag: number;
  waiting: WaitingCheck[] = [];
  corrections: Correction[] = [];
  sent: SentMessage | undefined;
  /** The check for which more tokens are wanted in advance. */
  prefetch: { limit: number; isSliding: boolean } | undefined;
  /** Whether usage is to be reported, and the lease returned. */
  mustSync = false;
  mustReturn = false;
  /** The number of the request for a report that Redis waits for; 0 for none. */
  report = 0;
  /** Those that wait until the usage is reported. */
  listeners: ((isDone: boolean) => void)[] = [];
  /** Whether a recall has come while a message was under way. */
  isRecalled = false;
  /** Whether the known use has fallen while a message was under way. */
  isWoken = false;
  /** When the waiting checks are sent again, monotonic ms. */
  retryMs = Number.POSITIVE_INFINITY;

  constructor(name: string, identity: Identity, key: number, bucket: number, tag: number) {
    this.name = name;
    this.identity = identity;
    this.key = key;
    this.durationMs = durationOfKey(key);
    this.bucket = bucket;
    this.namespaceTag = tag;
  }

  /** Whether a message can be sent now. */
  isReady(nowMs: number): boolean {
    if (this.sent !== undefined) return false;
    return this.#hasDuties() || this.waiting.some(isNew) || this.#isRetryDue(nowMs);
  }

  isIdle(): boolean {
    return this.sent === undefined && this.waiting.length === 0 && !this.#hasDuties();
  }

  #hasDuties(): boolean {
    return (
      this.mustSync ||
      this.report !== 0 ||
      this.mustReturn ||
      this.prefetch !== undefined ||
      this.corrections.length > 0
    );
  }

  #isRetryDue(nowMs: number): boolean {
    return this.waiting.length > 0 && nowMs >= this.retryMs;
  }
}

function isNew({ wasSent }: WaitingCheck): boolean {
  return !wasSent;
}
