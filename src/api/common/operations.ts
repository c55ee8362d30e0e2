/**
 * The operations that the main thread does: all that do not touch a counter. Acceptors hand them
 * over as they came, body or query unread, with the id of the key that they carry; `service.ts`
 * does them.
 */

import { BODY_MAX_BYTES, IMPORT_MAX_BYTES } from '../../core/constants.ts';
import type { ErrorCode, FaultLocation } from '../../core/errors.ts';
import type { Version } from './versions.ts';

interface OperationSpec {
  version: Version;
  method: 'GET' | 'POST';
  /** Whether it may change something, and so has to wait for its turn. */
  isWrite: boolean;
  /** The largest body of a POST. */
  maxBytes: number;
  /** What a request counts while it waits, beside its body: about what an answer has. */
  responseBytesEstimate: number;
}

const LARGE_RESPONSE_BYTES = 65_536;
const SMALL_RESPONSE_BYTES = 16_384;

const readV1: OperationSpec = {
  version: 'v1',
  method: 'GET',
  isWrite: false,
  maxBytes: 0,
  responseBytesEstimate: LARGE_RESPONSE_BYTES,
};
const writeV1: OperationSpec = {
  version: 'v1',
  method: 'POST',
  isWrite: true,
  maxBytes: BODY_MAX_BYTES,
  responseBytesEstimate: SMALL_RESPONSE_BYTES,
};
const writeV2: OperationSpec = { ...writeV1, version: 'v2' };
const readV2: OperationSpec = {
  ...writeV2,
  isWrite: false,
  responseBytesEstimate: LARGE_RESPONSE_BYTES,
};

/** By name: the path is / and the version, / and the name. */
export const OPERATIONS = {
  'ratelimits.setOverride': writeV1,
  'ratelimits.getOverride': readV1,
  'ratelimits.listOverrides': readV1,
  'ratelimits.deleteOverride': writeV1,
  'ratelimits.exportOverrides': { ...readV1, responseBytesEstimate: 1_048_576 },
  'ratelimits.importOverrides': { ...writeV1, maxBytes: IMPORT_MAX_BYTES },
  'ratelimits.listNamespaces': readV1,
  'ratelimits.listPolicies': readV1,
  'keys.create': writeV1,
  'keys.list': readV1,
  'keys.revoke': writeV1,
  'audit.list': readV1,
  'ratelimit.setOverride': writeV2,
  'ratelimit.getOverride': readV2,
  'ratelimit.listOverrides': readV2,
  'ratelimit.deleteOverride': writeV2,
} as const satisfies Record<string, OperationSpec>;

export type OperationName = keyof typeof OPERATIONS;
export const OPERATION_NAMES = Object.keys(OPERATIONS) as OperationName[];

export function operationPath(name: OperationName): string {
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
  | { body: string }
  | {
      code: ErrorCode | undefined;
      message: string;
      faultLocation: FaultLocation | undefined;
      stack: string | undefined;
    };
