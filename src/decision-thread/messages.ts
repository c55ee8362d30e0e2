/**
 * The messages between the main thread and a thread that decides checks, whatever its protocol. No
 * check waits for one. `server/messages.ts` and `rls/messages.ts` add those of one protocol.
 */

import type { MessagePort } from 'node:worker_threads';
import type { SketchAnnouncement } from '../analytics/recorder.ts';
import type { EventPlan } from '../events/event-recorder.ts';
import type { Publication } from '../registry/publication.ts';
import type { EngineData } from './create-engine.ts';

/** The `workerData` that each decision thread has. */
export interface DecisionThreadData {
  /** From 0; its stats block. Its locks carry the index plus 1 as their owner. */
  index: number;
  control: SharedArrayBuffer;
  engine: EngineData;
  hashKey: Uint8Array;
  activePublication: Publication;
  /** Undefined where decisions become no events. */
  events: EventPlan | undefined;
  /** By thread; undefined where recent decisions are off. */
  recentDecisions: readonly SharedArrayBuffer[] | undefined;
}

/** An internal error, for the log. */
export interface InternalErrorReport {
  /** Undefined where the protocol has no ids of requests. */
  requestId: string | undefined;
  message: string;
  stack: string | undefined;
}

export type FromDecisionThread =
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
  /** A publication is active on this thread. */
  | { kind: 'activated'; version: number };

export type ToDecisionThread =
  /** Active from the next check on; `activated` answers. */
  | { kind: 'publication'; version: number; publication: Publication }
  /** A shard worker starts; on this port it notifies the thread of decided checks. */
  | { kind: 'notificationPort'; worker: number; port: MessagePort }
  /** Stop listening, and close every connection with its next response. */
  | { kind: 'drain' }
  /** Close the open connections and end the thread. */
  | { kind: 'close' };
