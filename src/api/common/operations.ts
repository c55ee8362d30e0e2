/**
 * The operations of the API. Acceptors answer those on counters themselves. The main thread
 * executes all others: acceptors forward the raw body or query of a request, with the id of its
 * key, to `operation-executor.ts`.
 */

import { BODY_MAX_BYTES, IMPORT_MAX_BYTES, MULTI_LIMIT_MAX_BYTES } from '../../core/constants.ts';
import type { ErrorCode, FaultLocation } from '../../core/errors.ts';
import type { Version } from './versions.ts';

interface OperationSpec {
  version: Version;
  method: 'GET' | 'POST';
  /** Whether it may change something, and so waits for the writer. */
  isWrite: boolean;
  /** The largest body of a POST. */
  maxBytes: number;
  /** About the bytes of a response, which count against the bound of pending operations. */
  responseBytesEstimate: number;
}

/** Estimates of the largest responses, in bytes. */
export const RESPONSE_BYTES = {
  export: 1_048_576,
  figures: 262_144,
  read: 65_536,
  change: 16_384,
} as const;

const readV1: OperationSpec = {
  version: 'v1',
  method: 'GET',
  isWrite: false,
  maxBytes: 0,
  responseBytesEstimate: RESPONSE_BYTES.read,
};
const figuresV1: OperationSpec = { ...readV1, responseBytesEstimate: RESPONSE_BYTES.figures };
const writeV1: OperationSpec = {
  version: 'v1',
  method: 'POST',
  isWrite: true,
  maxBytes: BODY_MAX_BYTES,
  responseBytesEstimate: RESPONSE_BYTES.change,
};
const writeV2: OperationSpec = { ...writeV1, version: 'v2' };
const readV2: OperationSpec = {
  ...writeV2,
  isWrite: false,
  responseBytesEstimate: RESPONSE_BYTES.read,
};

/** The operations of the main thread, by name; the path is `/<version>/<name>`. */
export const OPERATIONS = {
  'ratelimits.setOverride': writeV1,
  'ratelimits.getOverride': readV1,
  'ratelimits.listOverrides': readV1,
  'ratelimits.deleteOverride': writeV1,
  'ratelimits.exportOverrides': { ...readV1, responseBytesEstimate: RESPONSE_BYTES.export },
  'ratelimits.importOverrides': { ...writeV1, maxBytes: IMPORT_MAX_BYTES },
  'ratelimits.listNamespaces': readV1,
  'ratelimits.deleteNamespace': writeV1,
  'ratelimits.listPolicies': readV1,
  'keys.create': writeV1,
  'keys.list': readV1,
  'keys.revoke': writeV1,
  'audit.list': readV1,
  'analytics.getNamespaces': figuresV1,
  'analytics.getTimeline': figuresV1,
  'analytics.getIdentifiers': readV1,
  'ratelimit.setOverride': writeV2,
  'ratelimit.getOverride': readV2,
  'ratelimit.listOverrides': readV2,
  'ratelimit.deleteOverride': writeV2,
} as const satisfies Record<string, OperationSpec>;

/** The operations on counters, by name. They are POST requests. */
export const COUNTER_OPERATIONS = {
  'ratelimits.limit': { version: 'v1', method: 'POST', maxBytes: BODY_MAX_BYTES },
  'ratelimits.refund': { version: 'v1', method: 'POST', maxBytes: BODY_MAX_BYTES },
  'ratelimits.reset': { version: 'v1', method: 'POST', maxBytes: BODY_MAX_BYTES },
  'ratelimits.inspect': { version: 'v1', method: 'POST', maxBytes: BODY_MAX_BYTES },
  'ratelimits.explain': { version: 'v1', method: 'POST', maxBytes: BODY_MAX_BYTES },
  'ratelimit.limit': { version: 'v2', method: 'POST', maxBytes: BODY_MAX_BYTES },
  'ratelimit.multiLimit': { version: 'v2', method: 'POST', maxBytes: MULTI_LIMIT_MAX_BYTES },
} as const satisfies Record<string, Pick<OperationSpec, 'version' | 'method' | 'maxBytes'>>;

/**
 * What acceptors ask the main thread before they answer an operation on counters, by the name of
 * that operation. No client calls these.
 */
const QUESTIONS = {
  'ratelimits.explain': { isWrite: false, responseBytesEstimate: RESPONSE_BYTES.read },
} as const satisfies Record<string, Pick<OperationSpec, 'isWrite' | 'responseBytesEstimate'>>;
export type QuestionName = keyof typeof QUESTIONS;

/** All that the main thread executes. */
export const EXECUTED = { ...OPERATIONS, ...QUESTIONS };

/** An operation that the main thread executes. */
export type OperationName = keyof typeof OPERATIONS;
export const OPERATION_NAMES = Object.keys(OPERATIONS) as OperationName[];
export type CounterOperationName = keyof typeof COUNTER_OPERATIONS;
export const COUNTER_OPERATION_NAMES = Object.keys(COUNTER_OPERATIONS) as CounterOperationName[];

export function operationPath(name: OperationName): string {
  return `/${OPERATIONS[name].version}/${name}`;
}

export function counterOperationPath(name: CounterOperationName): string {
  return `/${COUNTER_OPERATIONS[name].version}/${name}`;
}

/** What an acceptor forwards to the main thread. */
export interface OperationRequest {
  operation: OperationName | QuestionName;
  keyId: string;
  /** The body of a POST or of a question, the query of a GET. */
  input: Uint8Array | string;
}

/** The JSON object of the response, or an error, which is internal if it has no code. */
export type OperationResult =
  | { body: string }
  | {
      code: ErrorCode | undefined;
      message: string;
      faultLocation: FaultLocation | undefined;
      stack: string | undefined;
    };

/** What the main thread passes to an acceptor. */
export interface CounterOperationRequest {
  operation: CounterOperationName;
  keyId: string;
  body: Uint8Array;
}

/** The response of the API, also where it is an error. */
export interface CounterOperationResult {
  status: number;
  body: string;
}
