/** What the main thread and an acceptor say to each other, off the path of a check. */

import type { MessagePort } from 'node:worker_threads';
import type { OperationRequest, OperationResult } from '../api/common/operations.ts';
import type { Publication } from '../registry/publication.ts';
import type { AppDescriptors, TlsFiles } from './apps.ts';
import type { EngineData } from './create-engine.ts';
import type { ListenAddresses } from './listener.ts';
import type { InternalErrorReport } from './responder.ts';

/** What an acceptor is started with. */
export interface AcceptorData {
  /** From 0; its lane, and one less than the incarnation that its locks carry. */
  index: number;
  addresses: ListenAddresses;
  /** For TLS on the port. */
  tls: TlsFiles | undefined;
  /** How many all of them may have open at once. */
  connectionsMax: number;
  /** Base address of the service in links. */
  url: string;
  control: SharedArrayBuffer;
  engine: EngineData;
  hashKey: Uint8Array;
  /** Whether error answers are reported, for the log at level debug. */
  isReportingErrors: boolean;
  activePublication: Publication;
}

/** A record for the log at level debug. */
export interface DebugRecord {
  text: string;
  fields: object;
}

export type ToMain =
  /** It can serve; its Apps are for the one that listens. */
  | { kind: 'ready'; apps: AppDescriptors }
  | { kind: 'listening' }
  /** It cannot serve, or go on serving: the process has to end with this sentence. */
  | { kind: 'fatal'; sentence: string }
  /** No connection comes any more, of those that were handed on neither; who is open goes on. */
  | { kind: 'draining' }
  | { kind: 'namespace'; name: string }
  | { kind: 'failure'; failure: InternalErrorReport }
  | { kind: 'debug'; record: DebugRecord }
  /** To be answered with a `result` of the same number. */
  | { kind: 'operation'; number: number; request: OperationRequest }
  /** It has an App with the files for TLS as they are now, or says why not. */
  | { kind: 'renewed'; app: number }
  | { kind: 'kept'; sentence: string }
  /** Who connects now comes to the Apps named last. */
  | { kind: 'handsOn' }
  /** A publication is in force here. */
  | { kind: 'switched'; version: number };

export type ToAcceptor =
  /** Listen, and hand connections on to these Apps in turn. */
  | { kind: 'listen'; apps: AppDescriptors[] }
  /** Make an App with the files for TLS as they are now; answered with `renewed` or `kept`. */
  | { kind: 'renew' }
  /** Hand connections to the port on to these instead; to be answered with `handsOn`. */
  | { kind: 'handOn'; apps: number[] }
  /** Holds from the next check on; to be answered with `switched`. */
  | { kind: 'publication'; version: number; publication: Publication }
  | { kind: 'result'; number: number; result: OperationResult }
  /** A run of a shard worker begins, which sends its messages about answers here. */
  | { kind: 'door'; worker: number; port: MessagePort }
  /** Stop accepting, close every connection with its next answer. */
  | { kind: 'drain' }
  /** Close what is still open and end the thread. */
  | { kind: 'close' };
