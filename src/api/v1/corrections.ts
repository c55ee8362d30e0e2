/**
 * The bodies of POST /v1/ratelimits.refund, /v1/ratelimits.reset and /v1/ratelimits.inspect, which
 * are weir's own operations on counters. Failures are ApiErrors, in the order 400, 403, 404.
 */

import Type from 'typebox';
import type { Key } from '../../auth/keyring.ts';
import { algorithm } from '../../core/algorithm-fields.ts';
import {
  AMOUNT_MAX,
  DURATION_MAX_MS,
  DURATION_MIN_MS,
  IDENTIFIER_MAX_CHARACTERS,
  NAMESPACE_MAX_CHARACTERS,
} from '../../core/constants.ts';
import { ApiError } from '../../core/errors.ts';
import type { Namespace } from '../../core/namespace.ts';
import {
  createValidator,
  field,
  integer,
  JSON_OBJECT,
  milliseconds,
  text,
} from '../../core/schema.ts';
import { DEFAULT_RULE_V1, hasWindows, RULE, type RuleNumber } from '../../core/window-rules.ts';
import type { CounterState } from '../../engine/engine.ts';
import { DEFAULT_NAMESPACE } from '../common/check-request.ts';
import type { NamespaceFinder } from '../common/namespace-finder.ts';
import { namespaceNotFound } from '../common/namespace-reference.ts';
import {
  type CounterOperationV1,
  readBody,
  type UnknownFieldListener,
} from '../common/unknown-fields.ts';
import type { ResponseV1 } from './responses.ts';

const duration = () => milliseconds(DURATION_MIN_MS, DURATION_MAX_MS);
/** The identifier, as a check of either version names it. */
const counterFields = {
  namespace: Type.Optional(
    field(
      text(1, NAMESPACE_MAX_CHARACTERS),
      'Name or id of the namespace. A text that begins with `rlns_` is an id.',
      DEFAULT_NAMESPACE,
    ),
  ),
  identifier: field(text(0, IDENTIFIER_MAX_CHARACTERS), 'The `identifier` of the checks.'),
};

export const refundValidator = createValidator(
  Type.Object(
    {
      ...counterFields,
      algorithm: algorithm('The `algorithm` of the check.', DEFAULT_RULE_V1),
      duration: field(
        duration(),
        'The `duration` in the request of the check, in milliseconds, also if an override has ' +
          'replaced it.',
      ),
      reset: Type.Optional(
        field(
          integer(DURATION_MIN_MS, AMOUNT_MAX),
          'The `reset` in the response to the check, in Unix milliseconds. It is required unless ' +
            '`algorithm` is `gcra`, which ignores it.',
        ),
      ),
      cost: field(integer(0, AMOUNT_MAX), 'Tokens to return.'),
    },
    JSON_OBJECT,
  ),
);
/** Of a reset and of an inspection. */
export const countersValidator = createValidator(
  Type.Object(
    {
      ...counterFields,
      algorithm: algorithm(
        'Selects the counters of one algorithm; `fixed` and `sliding` share theirs. Without it, ' +
          'the counters of all algorithms are selected.',
      ),
      duration: Type.Optional(
        field(
          duration(),
          'Selects the counters of checks with this `duration`, in milliseconds. Without it, the ' +
            'counters of all durations are selected.',
        ),
      ),
    },
    JSON_OBJECT,
  ),
);

/** The identifier whose counters are meant. */
export interface CounterReference {
  namespace: Namespace;
  identifier: string;
}

export interface Refund extends CounterReference {
  /** The duration in the request of the check: an override may have given it another one. */
  durationMs: number;
  rule: RuleNumber;
  /** The `reset` in the response to the check, Unix time in ms; GCRA ignores it. */
  reset: number;
  cost: number;
}

export interface CounterSelection extends CounterReference {
  /** The duration in the requests of the checks; undefined for all durations. */
  durationMs: number | undefined;
  /** Undefined for all algorithms. */
  rule: RuleNumber | undefined;
}

/** @param bytes the complete body */
export function readRefund(
  namespaces: NamespaceFinder,
  key: Key,
  bytes: ArrayBuffer | Uint8Array,
  onUnknownFields: UnknownFieldListener<CounterOperationV1>,
): Refund {
  const body = readBody(refundValidator, bytes, 'ratelimits.refund', key, onUnknownFields);
  const { namespace: name = DEFAULT_NAMESPACE, identifier, algorithm, reset = 0, cost } = body;
  const rule = RULE[algorithm ?? DEFAULT_RULE_V1];
  if (body.reset === undefined && hasWindows(rule)) throw resetMissing();
  const namespace = namespaces.find(key, 'refund', name) ?? namespaces.getOrCreate(name, false);
  return { namespace, identifier, durationMs: body.duration, rule, reset, cost };
}

const RESET = 'the "reset" in the response to a check with this duration, a multiple of it';

function resetMissing(): ApiError {
  const accepts = 'the "reset" in the response to the check';
  const message = `"reset" is required unless "algorithm" is "gcra": ${accepts}`;
  return new ApiError('BAD_REQUEST', message, { location: 'body.reset', fix: `give ${accepts}` });
}

/** @param durationMs that of the counter */
export function resetMismatch(reset: number, durationMs: number): ApiError {
  const message = `"reset" must be ${RESET}; got ${reset} for ${durationMs} ms`;
  return new ApiError('BAD_REQUEST', message, { location: 'body.reset', fix: `give ${RESET}` });
}

/** @param bytes the complete body */
export function readReset(
  namespaces: NamespaceFinder,
  key: Key,
  bytes: ArrayBuffer | Uint8Array,
  onUnknownFields: UnknownFieldListener<CounterOperationV1>,
): CounterSelection {
  const body = readBody(countersValidator, bytes, 'ratelimits.reset', key, onUnknownFields);
  const { namespace: name = DEFAULT_NAMESPACE, identifier, duration: durationMs } = body;
  const namespace = namespaces.find(key, 'reset', name) ?? namespaces.getOrCreate(name, false);
  return { namespace, identifier, durationMs, rule: body.algorithm && RULE[body.algorithm] };
}

/** @param bytes the complete body */
export function readInspect(
  namespaces: NamespaceFinder,
  key: Key,
  bytes: ArrayBuffer | Uint8Array,
  onUnknownFields: UnknownFieldListener<CounterOperationV1>,
): CounterSelection {
  const body = readBody(countersValidator, bytes, 'ratelimits.inspect', key, onUnknownFields);
  const { namespace: name = DEFAULT_NAMESPACE, identifier, duration: durationMs } = body;
  const namespace = namespaces.find(key, 'read_namespace', name);
  if (namespace === undefined) throw namespaceNotFound({ name, field: 'namespace' });
  return { namespace, identifier, durationMs, rule: body.algorithm && RULE[body.algorithm] };
}

/** The body of the 200 to an inspection. */
export function inspectResult(
  { namespace, identifier }: CounterReference,
  counters: readonly CounterState[],
): ResponseV1<'ratelimits.inspect'> {
  return {
    namespace: namespace.name,
    identifier,
    counters: showCounters(counters),
  };
}

/** Counters in the form of a response. */
export function showCounters(
  counters: readonly CounterState[],
): ResponseV1<'ratelimits.inspect'>['counters'] {
  return counters.map(({ durationMs, usage, ...counter }) => {
    return { duration: durationMs, ...counter, algorithms: usage };
  });
}
