/**
 * The operations that the main thread does: all that do not touch a counter. Acceptors hand them
 * over as they came, body or query unread, with the id of the key that they carry; `service.ts`
 * does them.
 */

import type { ErrorCode, FaultPlace } from '../errors.ts';
import { BODY_MAX_BYTES, IMPORT_MAX_BYTES } from '../limits.ts';
import type { Version } from './faces.ts';

interface OperationKind {
  version: Version;
  method: 'GET' | 'POST';
  /** Whether it may change something, and so has to wait for its turn. */
  changes: boolean;
  /** The largest body of a POST. */
  maxBytes: number;
  /** What a request counts while it waits, beside its body: about what an answer has. */
  weight: number;
}

const LARGE_ANSWER = 65_536;
const SMALL_ANSWER = 16_384;

const ask: OperationKind = {
  version: 'v1',
  method: 'GET',
  changes: false,
  maxBytes: 0,
  weight: LARGE_ANSWER,
};
const change: OperationKind = {
  version: 'v1',
  method: 'POST',
  changes: true,
  maxBytes: BODY_MAX_BYTES,
  weight: SMALL_ANSWER,
};
const changeV2: OperationKind = { ...change, version: 'v2' };
const askV2: OperationKind = { ...changeV2, changes: false, weight: LARGE_ANSWER };

/** By name: the path is / and the version, / and the name. */
export const OPERATIONS = {
  'ratelimits.setOverride': change,
  'ratelimits.getOverride': ask,
  'ratelimits.listOverrides': ask,
  'ratelimits.deleteOverride': change,
  'ratelimits.exportOverrides': { ...ask, weight: 1_048_576 },
  'ratelimits.importOverrides': { ...change, maxBytes: IMPORT_MAX_BYTES },
  'ratelimits.listNamespaces': ask,
  'ratelimits.listPolicies': ask,
  'keys.create': change,
  'keys.list': ask,
  'keys.revoke': change,
  'audit.list': ask,
  'ratelimit.setOverride': changeV2,
  'ratelimit.getOverride': askV2,
  'ratelimit.listOverrides': askV2,
  'ratelimit.deleteOverride': changeV2,
} as const satisfies Record<string, OperationKind>;

export type OperationName = keyof typeof OPERATIONS;
export const OPERATION_NAMES = Object.keys(OPERATIONS) as OperationName[];

export function pathOf(name: OperationName): string {
  return `/${OPERATIONS[name].version}/${name}`;
}

/** An operation on its way from an acceptor to the main thread. */
export interface OperationRequest {
  operation: OperationName;
  keyId: string;
  /** The body of a POST, the query of a GET. */
  input: Uint8Array | string;
}

/** What came of it: what its answer holds, or an error; one without a code is one of ours. */
export type OperationResult =
  | { answer: string }
  | {
      code: ErrorCode | undefined;
      message: string;
      place: FaultPlace | undefined;
      stack: string | undefined;
    };
