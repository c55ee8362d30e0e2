/** What threads send each other about operations. */

import type { Role } from '../../auth/roles.ts';
import type { ErrorCode, FaultLocation } from '../../core/errors.ts';
import type { CounterOperationName } from './counter-operations.ts';
import type { OperationName, QuestionName } from './main-operations.ts';

/** What an acceptor forwards to the main thread. */
export interface OperationRequest {
  operation: OperationName | QuestionName;
  /** Or the id of a user. */
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
  /** Of a user, whose id `keyId` is then. */
  role?: Role;
  body: Uint8Array;
}

/** The response of the API, also where it is an error. */
export interface CounterOperationResult {
  status: number;
  body: string;
}
