/**
 * The event stream of the server: the last hour by minute, and the snapshots of the last minutes by
 * second. The browser connects again by itself when the connection is lost. It does not when the
 * server has ended the stream.
 */

import { useEffect, useState } from 'preact/hooks';
import type { Snapshot } from '../../observe/dashboard/snapshot.ts';
import { mergeMinutes, type PastMinute } from './minutes.ts';
import { sessionState } from './operations.ts';
import { setServerTime } from './server-clock.ts';

/** Snapshots that are kept: five minutes. */
const HISTORY_MAX = 300;
const RETRY_MS = 2_000;
/** Seconds over which current rates and percentiles are averaged. */
export const RECENT_S = 10;

export type Connection = 'connecting' | 'open' | 'lost' | 'replaced';

export interface Live {
  connection: Connection;
  /** The newest last. */
  history: readonly Snapshot[];
  /** The minutes of the last hour, the newest last. */
  minutes: readonly PastMinute[];
}

const NOTHING: Live = { connection: 'connecting', history: [], minutes: [] };

class LiveFeed {
  #live = NOTHING;
  #source: EventSource | undefined;
  #retryTimer: ReturnType<typeof setTimeout> | undefined;
  readonly #onChange: (live: Live) => void;
  readonly #onSessionEnd: (reason: string) => void;

  constructor(onChange: (live: Live) => void, onSessionEnd: (reason: string) => void) {
    this.#onChange = onChange;
    this.#onSessionEnd = onSessionEnd;
  }

  open(): void {
    this.close();
    const source = new EventSource('/dashboard/events');
    this.#source = source;
    source.addEventListener('snapshot', ({ data }) => this.#add(JSON.parse(data)));
    source.addEventListener('minutes', ({ data }) => {
      this.#update({ minutes: mergeMinutes(this.#live.minutes, JSON.parse(data)) });
    });
    source.addEventListener('signed-out', ({ data }) => {
      this.close();
      this.#onSessionEnd(JSON.parse(data).reason);
    });
    source.addEventListener('renew', () => this.open());
    source.addEventListener('replaced', () => {
      this.close();
      this.#update({ connection: 'replaced' });
    });
    source.addEventListener('error', () => {
      this.#update({ connection: 'lost' });
      // Otherwise the browser tries again itself.
      if (source.readyState === EventSource.CLOSED) void this.#retry();
    });
  }

  close(): void {
    this.#source?.close();
    clearTimeout(this.#retryTimer);
  }

  /** The server has rejected the stream: weir has restarted, or the session is over. */
  async #retry(): Promise<void> {
    try {
      if ((await sessionState()).session === null) {
        this.close();
        this.#onSessionEnd('the session is over, or weir has restarted: sign in again');
        return;
      }
    } catch {
      // weir does not respond, or is starting.
    }
    this.#retryTimer = setTimeout(() => this.open(), RETRY_MS);
  }

  #add(snapshot: Snapshot): void {
    setServerTime(snapshot.at);
    const { history } = this.#live;
    this.#update({ connection: 'open', history: [...history, snapshot].slice(-HISTORY_MAX) });
  }

  #update(change: Partial<Live>): void {
    this.#live = { ...this.#live, ...change };
    this.#onChange(this.#live);
  }
}

/** Follows the events while the component is shown. @returns the state, and how to resume it */
export function useLive(onSessionEnd: (reason: string) => void): [Live, () => void] {
  const [live, setLive] = useState<Live>(NOTHING);
  const [feed] = useState(() => new LiveFeed(setLive, onSessionEnd));
  useEffect(() => {
    feed.open();
    return () => feed.close();
  }, [feed]);
  return [live, () => feed.open()];
}

/** Events in a second over the last snapshots. */
export function recentRate(
  history: readonly Snapshot[],
  seconds: number,
  read: (snapshot: Snapshot) => number,
): number {
  const used = history.slice(-seconds).filter(({ intervalMs }) => intervalMs > 0);
  const ms = used.reduce((sum, { intervalMs }) => sum + intervalMs, 0);
  if (ms === 0) return 0;
  return (used.reduce((sum, snapshot) => sum + read(snapshot), 0) * 1_000) / ms;
}

/** Adds up histograms by bucket. */
export function sumHistograms(histograms: readonly (readonly number[])[]): number[] {
  const [first = []] = histograms;
  return first.map((_, bucket) => histograms.reduce((sum, counts) => sum + counts[bucket], 0));
}

/** Decisions of a snapshot in some namespaces. */
export function sumOf(namespaces: Snapshot['namespaces'], field: 'allowed' | 'denied'): number {
  return namespaces.reduce((sum, { recent }) => sum + recent[field], 0);
}

/** Check requests of a snapshot. */
export function requestsOf({ latency }: Snapshot): number {
  return latency.reduce((sum, count) => sum + count, 0);
}
