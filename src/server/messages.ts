/** The messages between the main thread and an acceptor. No check waits for one. */

import type { MainRoute } from '../api/common/operation.ts';
import type { UnknownField } from '../api/common/unknown-fields.ts';
import type { OperationName } from '../api/operations/main-operations.ts';
import type {
  CounterOperationRequest,
  CounterOperationResult,
  OperationRequest,
  OperationResult,
} from '../api/operations/messages.ts';
import type {
  DecisionThreadData,
  FromDecisionThread,
  ToDecisionThread,
} from '../decision-thread/messages.ts';
import type { AppDescriptors, TlsFiles } from './apps.ts';
import type { ListenAddresses } from './listener.ts';

/** The `workerData` of an acceptor thread. */
export interface AcceptorData extends DecisionThreadData {
  addresses: ListenAddresses;
  /** For TLS on the port. */
  tls: TlsFiles | undefined;
  /** How many connections all acceptors together may have open. */
  connectionsMax: number;
  /** Base address of the service in links; '' if it listens on all addresses. */
  url: string;
  /** Whether `url` is WEIR_PUBLIC_URL. */
  isPublicUrl: boolean;
  /** Of the operations that the main thread executes. */
  mainRoutes: readonly MainRoute<OperationName>[];
  /** Whether it reports error responses, for the log at level debug. */
  isReportingErrors: boolean;
}

/** A record for the log at level debug. */
export interface DebugRecord {
  text: string;
  fields: object;
}

export type ToMain =
  | FromDecisionThread
  /** It can serve; the acceptor that listens distributes connections to its Apps. */
  | { kind: 'ready'; apps: AppDescriptors }
  | { kind: 'debug'; record: DebugRecord }
  /** The first request of a key with a field that weir does not know. */
  | { kind: 'unknownField'; field: UnknownField }
  /** The main thread answers with a `result` of the same number. */
  | { kind: 'operation'; number: number; request: OperationRequest }
  /** The answer to a `counterOperation` of the same number. */
  | { kind: 'counterResult'; number: number; result: CounterOperationResult }
  /** It has an App with the TLS files as they are now. */
  | { kind: 'tlsReloaded'; app: number }
  | { kind: 'tlsReloadFailed'; reason: string }
  /** New connections to the port go to the Apps of the last `distribute`. */
  | { kind: 'distributing' };

export type ToAcceptor =
  | ToDecisionThread
  /** Listen, and distribute connections to these Apps in turn. */
  | { kind: 'listen'; apps: AppDescriptors[] }
  /** Make an App with the TLS files as they are now: `tlsReloaded` or `tlsReloadFailed` answers. */
  | { kind: 'reloadTls' }
  /** Distribute connections to the port to these Apps instead; `distributing` answers. */
  | { kind: 'distribute'; apps: number[] }
  | { kind: 'result'; number: number; result: OperationResult }
  /** An operation on counters from the dashboard; `counterResult` answers. */
  | { kind: 'counterOperation'; number: number; request: CounterOperationRequest };
