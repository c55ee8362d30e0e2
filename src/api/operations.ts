/**
 * The operations that the main thread does: all but a check. Acceptors hand them over as they came,
 * body or query unread, with the id of the key that they carry; `service.ts` does them.
 */

import type { ErrorCode } from '../errors.ts';
import { BODY_MAX_BYTES, IMPORT_MAX_BYTES } from '../limits.ts';

interface OperationKind {
  method: 'GET' | 'POST';
  /** The largest body of a POST. */
  maxBytes: number;
  /** What a request counts while it waits, beside its body: about what an answer has. */
  weight: number;
}

const get: OperationKind = { method: 'GET', maxBytes: 0, weight: 65_536 };
const post: OperationKind = { method: 'POST', maxBytes: BODY_MAX_BYTES, weight: 16_384 };

/** By name: the path is /v1/ and the name. */
export const OPERATIONS = {
  'ratelimits.setOverride': post,
  'ratelimits.getOverride': get,
  'ratelimits.listOverrides': get,
  'ratelimits.deleteOverride': post,
  'ratelimits.exportOverrides': { ...get, weight: 1_048_576 },
  'ratelimits.importOverrides': { ...post, maxBytes: IMPORT_MAX_BYTES },
  'ratelimits.listNamespaces': get,
  'keys.create': post,
  'keys.list': get,
  'keys.revoke': post,
} as const satisfies Record<string, OperationKind>;

export type OperationName = keyof typeof OPERATIONS;
export const OPERATION_NAMES = Object.keys(OPERATIONS) as OperationName[];

/** An operation on its way from an acceptor to the main thread. */
export interface OperationRequest {
  operation: OperationName;
  keyId: string;
  /** The body of a POST, the query of a GET. */
  input: Uint8Array | string;
}

/** What came of it: the body of the 200, or an error; one without a code is one of ours. */
export type OperationResult =
  | { answer: string }
  | { code: ErrorCode | undefined; message: string; stack: string | undefined };
