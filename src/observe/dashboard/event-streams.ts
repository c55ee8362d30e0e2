/**
 * The event streams of the dashboard: server-sent events with a snapshot a second. A stream begins
 * with the minutes of the last hour, and gets each further minute. An event is made once for all
 * streams, and only while there is one. What a key may not see is left out. A client that does not
 * read is disconnected; a session has one stream, and a second replaces it. A user of a proxy opens
 * the stream again from time to time: the proxy may have signed them out.
 */

import type { ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { Permissions } from '../../auth/permissions.ts';
import {
  DASHBOARD_EVENT_INTERVAL_MS,
  DASHBOARD_PROXIED_EVENTS_MAX,
  DASHBOARD_STREAM_UNREAD_BYTES_MAX,
  DASHBOARD_STREAMS_MAX,
} from '../../core/constants.ts';
import { ApiError } from '../../core/errors.ts';
import type { MinuteReader } from './minutes.ts';
import type { Sampler } from './sampler.ts';
import type { Session, Sessions } from './sessions.ts';
import type { Minutes } from './snapshot.ts';

/** Makes snapshots; after `reset` the first one has no recent figures. */
type SnapshotSource = Pick<Sampler, 'sample' | 'reset'>;
type MinuteSource = Pick<MinuteReader, 'current' | 'read' | 'readHour'>;

interface EventStream {
  readonly res: ServerResponse;
  events: number;
}

export class EventStreams {
  readonly #bySession = new Map<Session, EventStream>();
  readonly #sampler: SnapshotSource;
  readonly #minutes: MinuteSource;
  /** The last minute that streams have. */
  #minute = 0;
  /** Keeps the connection of a stream from counting as idle. */
  readonly #keepConnection: (socket: Socket) => void;
  #timer: NodeJS.Timeout | undefined;

  constructor(
    sampler: SnapshotSource,
    minutes: MinuteSource,
    keepConnection: (socket: Socket) => void,
  ) {
    this.#sampler = sampler;
    this.#minutes = minutes;
    this.#keepConnection = keepConnection;
  }

  /**
   * Answers with the stream of a session.
   * @param sessions whose invalid ones are ended before each event
   * @throws ApiError (503)
   */
  open(session: Session, res: ServerResponse, headers: object, sessions: Sessions): void {
    this.end(session, 'replaced', 'another tab of this browser shows the dashboard');
    if (this.#bySession.size >= DASHBOARD_STREAMS_MAX) {
      const message = `all ${DASHBOARD_STREAMS_MAX} event streams of the dashboard are in use`;
      throw new ApiError('SERVICE_UNAVAILABLE', message);
    }
    res.writeHead(200, { ...headers, 'Content-Type': 'text/event-stream', Connection: 'close' });
    // The events are small, and each must arrive at once.
    res.socket?.setNoDelay(true);
    session.isWatching = true;
    this.#bySession.set(session, { res, events: 0 });
    res.once('close', () => this.#remove(session, res));
    res.write(minutesFor(session.permissions, this.#minutes.readHour()));
    if (this.#timer === undefined) {
      this.#sampler.reset();
      this.#minute = this.#minutes.current;
      this.#timer = setInterval(() => this.#tick(sessions), DASHBOARD_EVENT_INTERVAL_MS);
      this.#sendSnapshot();
    }
  }

  /** Ends the stream of a session, where it has one, with an event that says why. */
  end(session: Session, event: 'signed-out' | 'replaced' | 'renew', reason: string): void {
    const res = this.#bySession.get(session)?.res;
    if (res === undefined) return;
    this.#remove(session, res);
    res.end(`event: ${event}\ndata: ${JSON.stringify({ reason })}\n\n`);
  }

  #remove(session: Session, res: ServerResponse): void {
    if (this.#bySession.get(session)?.res !== res) return;
    this.#bySession.delete(session);
    session.isWatching = false;
    if (this.#bySession.size > 0) return;
    clearInterval(this.#timer);
    this.#timer = undefined;
  }

  #tick(sessions: Sessions): void {
    sessions.endInvalid();
    if (this.#bySession.size === 0) return;
    const minute = this.#minutes.current;
    if (minute !== this.#minute) {
      this.#minute = minute;
      const ended = this.#minutes.read(2);
      this.#send((permissions) => minutesFor(permissions, ended));
    }
    this.#sendSnapshot();
  }

  #sendSnapshot(): void {
    const snapshot = this.#sampler.sample();
    this.#send((permissions) => {
      const namespaces = visibleOf(permissions, snapshot.namespaces);
      return eventText('snapshot', { ...snapshot, namespaces });
    });
  }

  /** @param textFor makes the text for holders with these permissions */
  #send(textFor: (permissions: readonly string[]) => string): void {
    const textByHolder = new Map<string, string>();
    for (const [session, stream] of this.#bySession) {
      const { holderId, role, permissions } = session;
      const { res } = stream;
      if (res.writableLength > DASHBOARD_STREAM_UNREAD_BYTES_MAX) {
        res.destroy();
        continue;
      }
      const text = textByHolder.get(holderId) ?? textFor(permissions);
      textByHolder.set(holderId, text);
      res.write(text);
      if (res.socket !== null) this.#keepConnection(res.socket);
      stream.events++;
      if (role !== undefined && stream.events === DASHBOARD_PROXIED_EVENTS_MAX) {
        this.end(session, 'renew', 'the proxy must see a new request');
      }
    }
  }
}

function minutesFor(permissions: readonly string[], { decisions, ...others }: Minutes): string {
  if (decisions === undefined) return eventText('minutes', others);
  const namespaces = visibleOf(permissions, decisions.namespaces);
  return eventText('minutes', { ...others, decisions: { ...decisions, namespaces } });
}

/** Those whose analytics the holder may read. */
function visibleOf<Namespace extends { id?: string }>(
  granted: readonly string[],
  namespaces: readonly Namespace[],
): Namespace[] {
  const permissions = new Permissions(granted);
  return namespaces.filter(({ id }) => permissions.may('read_analytics', id));
}

function eventText(event: string, data: object): string {
  return `event: ${event}\ndata: ${JSON.stringify(data)}\n\n`;
}
