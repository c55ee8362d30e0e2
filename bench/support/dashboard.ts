/** Dashboards that are open while a server is under load: what a browser holds of each. */

import { request } from 'node:http';
import { NAMESPACE, ROOT_KEY } from './override-sets.ts';

/** How often the view of a namespace reads its figures. */
const REFRESH_MS = 2_000;

/** What a dashboard gets until it is closed. */
export interface Subscription {
  close: () => void;
}

export class DashboardSession {
  readonly #origin: string;
  readonly #cookie: string;

  private constructor(origin: string, cookie: string) {
    this.#origin = origin;
    this.#cookie = cookie;
  }

  static async signIn(adminPort: number): Promise<DashboardSession> {
    const origin = `http://127.0.0.1:${adminPort}`;
    const response = await fetch(`${origin}/dashboard/session`, {
      method: 'POST',
      headers: { Origin: origin, 'Content-Type': 'application/json' },
      body: JSON.stringify({ key: ROOT_KEY }),
    });
    const [cookie] = (response.headers.get('set-cookie') ?? '').split(';');
    if (response.status !== 200) throw new Error(`the sign-in failed: ${await response.text()}`);
    return new DashboardSession(origin, cookie);
  }

  /** Opens the event stream, whose snapshots are read and dropped. */
  openEvents(): Promise<Subscription> {
    return new Promise((resolve, reject) => {
      const headers = { cookie: this.#cookie };
      const stream = request(`${this.#origin}/dashboard/events`, { headers });
      stream.on('error', reject);
      stream.on('response', (events) => {
        if (events.statusCode !== 200) reject(new Error(`no stream: ${events.statusCode}`));
        events.once('data', () => resolve({ close: () => stream.destroy() }));
        events.on('error', () => {});
        events.once('close', () => reject(new Error('the stream ended before its first snapshot')));
        events.resume();
      });
      stream.end();
    });
  }

  /** Reads the last hour of a namespace again and again, as its view does. */
  followNamespace(): Subscription {
    const read = async () => {
      const end = Date.now();
      const range = { namespaceName: NAMESPACE, start: `${end - 3_600_000}`, end: `${end + 1}` };
      const timeline = new URLSearchParams({ ...range, granularity: 'minute' });
      const identifiers = new URLSearchParams({ ...range, limit: '10' });
      await Promise.all([
        this.#read(`analytics.getTimeline?${timeline}`),
        this.#read(`analytics.getIdentifiers?${identifiers}`),
      ]);
    };
    let isClosed = false;
    const timer = setInterval(() => {
      read().catch((error) => {
        // The server has ended meanwhile.
        if (!isClosed) throw error;
      });
    }, REFRESH_MS);
    const close = () => {
      isClosed = true;
      clearInterval(timer);
    };
    return { close };
  }

  async #read(operation: string): Promise<void> {
    const url = `${this.#origin}/dashboard/api/${operation}`;
    const response = await fetch(url, { headers: { cookie: this.#cookie } });
    const text = await response.text();
    if (response.status !== 200) throw new Error(`${operation} failed: ${text}`);
  }
}
