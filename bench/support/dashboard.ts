/** Dashboards that are open while a server is under load: what a browser holds of each. */

import { request } from 'node:http';
import { ROOT_KEY } from './override-sets.ts';

export interface EventStream {
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
  openEvents(): Promise<EventStream> {
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
}
