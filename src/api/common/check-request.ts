/**
 * A check as an acceptor read it from a body. Its identifier stays as bytes in the memory of the
 * scanner. One object serves one request after the other, so a check that is decided later must be
 * copied.
 */

import { type AlgorithmFields, requireValidBurst } from '../../core/algorithm-fields.ts';
import { Bytes } from '../../core/bytes.ts';
import { copyCheck } from '../../core/check.ts';
import {
  DURATION_MIN_MS,
  IDENTIFIER_MAX_CHARACTERS,
  NAMESPACE_MAX_CHARACTERS,
} from '../../core/constants.ts';
import { newIdentity } from '../../core/hash.ts';
import type { Namespace } from '../../core/namespace.ts';
import { NO_BURST, RULE, type RuleNumber } from '../../core/window-rules.ts';
import type { OverridableCheck } from '../../overrides/active.ts';
import { type BodyScanner, FIELD } from './body-scanner.ts';

/** The rules of a version for a scanned check; a test compares them with its schema. */
export interface CheckRules {
  /** Bits of FIELD. */
  requiredFields: number;
  optionalFields: number;
  identifierMinCharacters: number;
  durationMaxMs: number;
}

/** A valid body of either version. */
export interface CheckBody extends AlgorithmFields {
  identifier: string;
  limit: number;
  duration: number;
  namespace?: string;
  cost?: number;
  async?: boolean;
  requestId?: string;
}

export const DEFAULT_NAMESPACE = 'default';
export const DEFAULT_COST = 1;

/** What the fields of a check mean in both versions. */
export const CHECK_FIELDS = {
  identifier:
    'The client that is limited: a user id, an e-mail address, an IP address or any other text. ' +
    'It is compared unchanged: it is not trimmed, case-folded or normalized.',
  limit: 'Tokens that may be used in one window.',
  duration: 'Length of the window in milliseconds.',
  cost: 'Tokens that the check uses. With 0 the check returns the state and uses nothing.',
} as const;

export class CheckRequest implements OverridableCheck {
  /** Set after the look-up of `namespaceIdOrName`. */
  namespace!: Namespace;
  /** Set when the namespace is known. */
  readonly identity = newIdentity();
  /** As in the body. */
  namespaceIdOrName = '';
  limit = 0;
  durationMs = 0;
  cost = 0;
  rule: RuleNumber;
  burst = NO_BURST;
  isAsync = false;
  overrideId: string | undefined = undefined;
  readonly needsOverrideId: boolean;
  readonly memory: Bytes;
  /** The bytes of the identifier in `memory`, UTF-8. */
  identifierFrom = 0;
  identifierTo = 0;
  readonly #defaultRule: RuleNumber;
  /** Of the last parsed body. The scanner accepts no body that has it. */
  #requestId: string | undefined;

  /** @param defaultRule the window rule of each request, unless it names another */
  constructor(memory: Bytes, defaultRule: RuleNumber, needsOverrideId: boolean) {
    this.memory = memory;
    this.rule = defaultRule;
    this.#defaultRule = defaultRule;
    this.needsOverrideId = needsOverrideId;
  }

  /** The identifier as text, which patterns are matched with. */
  get identifier(): string {
    return this.memory.text(this.identifierFrom, this.identifierTo);
  }

  /**
   * Whether the body may have fields that are not here. The scanner accepts no others, and leaves
   * an identifier where it is in the body: after the name of its field.
   */
  get mayHaveOtherFields(): boolean {
    return this.identifierFrom === 0;
  }

  /** The `requestId` of the body; undefined in a copy. */
  get requestId(): string | undefined {
    return this.mayHaveOtherFields ? this.#requestId : undefined;
  }

  /** A copy for a later turn of the loop, with the bytes of the identifier. */
  copy(): CheckRequest {
    const length = this.identifierTo - this.identifierFrom;
    const memory = new Bytes(length);
    this.memory.array.copy(memory.array, 0, this.identifierFrom, this.identifierTo);
    const copied = new CheckRequest(memory, this.#defaultRule, this.needsOverrideId);
    const { namespaceIdOrName } = this;
    const { identifier: _, ...fields } = copyCheck(this);
    return Object.assign(copied, fields, { namespaceIdOrName, identifierTo: length });
  }

  /** Reads the object that was just scanned. @returns false if a rule of the version may fail */
  setFromScan(
    scanner: BodyScanner,
    { requiredFields, optionalFields, identifierMinCharacters, durationMaxMs }: CheckRules,
  ): boolean {
    const { foundFields, limit, duration, identifierLength } = scanner;
    if (
      (foundFields & requiredFields) !== requiredFields ||
      (foundFields & ~(requiredFields | optionalFields)) !== 0
    )
      return false;
    if (limit < 1 || duration < DURATION_MIN_MS || duration > durationMaxMs) return false;
    if (
      identifierLength < identifierMinCharacters ||
      identifierLength > IDENTIFIER_MAX_CHARACTERS
    ) {
      return false;
    }
    this.namespaceIdOrName = DEFAULT_NAMESPACE;
    if ((foundFields & FIELD.namespace) !== 0) {
      const { namespaceLength } = scanner;
      if (namespaceLength < 1 || namespaceLength > NAMESPACE_MAX_CHARACTERS) return false;
      this.namespaceIdOrName = scanner.readNamespace();
    }
    this.limit = limit;
    this.durationMs = duration;
    this.cost = (foundFields & FIELD.cost) === 0 ? DEFAULT_COST : scanner.cost;
    this.rule = this.#defaultRule;
    this.burst = NO_BURST;
    this.isAsync = (foundFields & FIELD.async) !== 0 && scanner.isAsync;
    this.overrideId = undefined;
    this.identifierFrom = scanner.identifierFrom;
    this.identifierTo = scanner.identifierTo;
    return true;
  }

  /**
   * Reads a parsed body.
   * @param identifierOffset where to write its identifier
   * @returns the offset after it
   * @throws ApiError (400) for a burst that the other fields do not allow
   */
  setFromBody(body: CheckBody, identifierOffset: number): number {
    requireValidBurst(body);
    this.namespaceIdOrName = body.namespace ?? DEFAULT_NAMESPACE;
    this.limit = body.limit;
    this.durationMs = body.duration;
    this.cost = body.cost ?? DEFAULT_COST;
    this.rule = body.algorithm === undefined ? this.#defaultRule : RULE[body.algorithm];
    this.burst = body.burst ?? NO_BURST;
    this.isAsync = body.async === true;
    this.#requestId = body.requestId;
    this.overrideId = undefined;
    this.identifierFrom = identifierOffset;
    this.identifierTo = this.memory.write(body.identifier, identifierOffset);
    return this.identifierTo;
  }
}
