/** The messages between the main thread and an acceptor. No check waits for one. */

import type { MessagePort } from 'node:worker_threads';
import type { SketchAnnouncement } from '../analytics/recorder.ts';
import type { MainRoute } from '../api/common/operation.ts';
import type { UnknownField } from '../api/common/unknown-fields.ts';
import type { OperationName } from '../api/operations/main-operations.ts';
import type {
  CounterOperationRequest,
  CounterOperationResult,
  OperationRequest,
  OperationResult,
} from '../api/operations/messages.ts';
import type { EventPlan } from '../events/event-recorder.ts';
import type { Publication } from '../registry/publication.ts';
import type { AppDescriptors, TlsFiles } from './apps.ts';
import type { EngineData } from './create-engine.ts';
import type { ListenAddresses } from './listener.ts';
import type { InternalErrorReport } from './responder.ts';

/** The `workerData` of an acceptor thread. */
export interface AcceptorData {
  /** From 0; its stats block. Its locks carry the index plus 1 as their owner. */
  index: number;
  addresses: ListenAddresses;
  /** For TLS on the port. */
  tls: TlsFiles | undefined;
  /** How many connections all acceptors together may have open. */
  connectionsMax: number;
  /** Base address of the service in links; '' if it listens on all addresses. */
  url: string;
  /** Whether `url` is WEIR_PUBLIC_URL. */
  isPublicUrl: boolean;
  control: SharedArrayBuffer;
  engine: EngineData;
  hashKey: Uint8Array;
  /** Of the operations that the main thread executes. */
  mainRoutes: readonly MainRoute<OperationName>[];
  /** Whether it reports error responses, for the log at level debug. */
  isReportingErrors: boolean;
  activePublication: Publication;
  /** Undefined where decisions become no events. */
  events: EventPlan | undefined;
}

/** A record for the log at level debug. */
export interface DebugRecord {
  text: string;
  fields: object;
}

export type ToMain =
  /** It can serve; the acceptor that listens distributes connections to its Apps. */
  | { kind: 'ready'; apps: AppDescriptors }
  | { kind: 'listening' }
  /** It cannot serve: the main thread prints the reason and ends the process. */
  | { kind: 'fatal'; reason: string }
  /** It gets no more connections, distributed ones included; open connections stay open. */
  | { kind: 'draining' }
  /** A check has used a namespace that is not registered. */
  | { kind: 'namespace'; name: string }
  /** It counts the identifiers of a namespace from now on. */
  | { kind: 'sketches'; announcement: SketchAnnouncement }
  | { kind: 'internalError'; report: InternalErrorReport }
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
  | { kind: 'distributing' }
  /** A publication is active on this acceptor. */
  | { kind: 'activated'; version: number };

export type ToAcceptor =
  /** Listen, and distribute connections to these Apps in turn. */
  | { kind: 'listen'; apps: AppDescriptors[] }
  /** Make an App with the TLS files as they are now: `tlsReloaded` or `tlsReloadFailed` answers. */
  | { kind: 'reloadTls' }
  /** Distribute connections to the port to these Apps instead; `distributing` answers. */
  | { kind: 'distribute'; apps: number[] }
  /** Active from the next check on; `activated` answers. */
  | { kind: 'publication'; version: number; publication: Publication }
  | { kind: 'result'; number: number; result: OperationResult }
  /** An operation on counters from the dashboard; `counterResult` answers. */
  | { kind: 'counterOperation'; number: number; request: CounterOperationRequest }
  /** A shard worker starts; on this port it notifies the acceptor of decided checks. */
  | { kind: 'notificationPort'; worker: number; port: MessagePort }
  /** Stop listening, and close every connection with its next response. */
  | { kind: 'drain' }
  /** Close the open connections and end the thread. */
  | { kind: 'close' };
