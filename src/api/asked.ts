/**
 * A check as it was asked, in the hand of an acceptor: what decides it, and its identifier as bytes
 * where the body lies. It is filled in for one request after the other, so that who answers later
 * keeps a copy of what it needs.
 */

import type { Bytes } from '../bytes.ts';
import { DURATION_MIN_MS, IDENTIFIER_MAX_CHARACTERS, NAMESPACE_MAX_CHARACTERS } from '../limits.ts';
import type { Namespace } from '../namespaces/known.ts';
import type { Governed } from '../overrides/in-force.ts';
import { FIELD, type Scan } from './scan.ts';

/** What a version takes, of what may differ; a test compares them with its schema. */
export interface Takes {
  /** Bits of FIELD. */
  required: number;
  optional: number;
  identifierMin: number;
  durationMaxMs: number;
}

/** A body of any version that is in order. */
export interface CheckBody {
  identifier: string;
  limit: number;
  duration: number;
  namespace?: string;
  cost?: number;
  async?: boolean;
}

export const DEFAULT_NAMESPACE = 'default';
const DEFAULT_COST = 1;

export class AskedCheck implements Governed {
  /** Set when its name has been looked up. */
  namespace!: Namespace;
  /** The text by which it was named. */
  named = '';
  limit = 0;
  durationMs = 0;
  cost = 0;
  readonly isSliding: boolean;
  isAsync = false;
  overrideId: string | undefined = undefined;
  readonly memory: Bytes;
  /** Where the identifier lies there, in UTF-8. */
  from = 0;
  to = 0;

  constructor(memory: Bytes, isSliding: boolean) {
    this.memory = memory;
    this.isSliding = isSliding;
  }

  /** The identifier as text, for whoever must look at its characters. */
  get identifier(): string {
    return this.memory.text(this.from, this.to);
  }

  /** Takes what was just scanned. @returns false for what is not in order, or may not be */
  take(scan: Scan, { required, optional, identifierMin, durationMaxMs }: Takes): boolean {
    const { found, limit, duration, identifierLength } = scan;
    if ((found & required) !== required || (found & ~(required | optional)) !== 0) return false;
    if (limit < 1 || duration < DURATION_MIN_MS || duration > durationMaxMs) return false;
    if (identifierLength < identifierMin || identifierLength > IDENTIFIER_MAX_CHARACTERS) {
      return false;
    }
    this.named = DEFAULT_NAMESPACE;
    if ((found & FIELD.namespace) !== 0) {
      const { namespaceLength } = scan;
      if (namespaceLength < 1 || namespaceLength > NAMESPACE_MAX_CHARACTERS) return false;
      this.named = scan.namespace();
    }
    this.limit = limit;
    this.durationMs = duration;
    this.cost = (found & FIELD.cost) === 0 ? DEFAULT_COST : scan.cost;
    this.isAsync = (found & FIELD.async) !== 0 && scan.isAsync;
    this.from = scan.identifierFrom;
    this.to = scan.identifierTo;
    return true;
  }

  /** Takes a body that was parsed. @param at where its identifier is put @returns behind it */
  set(body: CheckBody, at: number): number {
    this.named = body.namespace ?? DEFAULT_NAMESPACE;
    this.limit = body.limit;
    this.durationMs = body.duration;
    this.cost = body.cost ?? DEFAULT_COST;
    this.isAsync = body.async === true;
    this.from = at;
    this.to = this.memory.write(body.identifier, at);
    return this.to;
  }
}
