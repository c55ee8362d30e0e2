/** Dashboards that are open while a server is under load: what a browser holds of each. */

import { type ClientRequest, request } from 'node:http';
import { ROOT_KEY } from './override-sets.ts';

/** Signs in and opens an event stream, whose snapshots are read and dropped. */
export async function openDashboard(adminPort: number): Promise<{ close: () => void }> {
  const origin = `http://127.0.0.1:${adminPort}`;
  const response = await fetch(`${origin}/dashboard/session`, {
    method: 'POST',
    headers: { Origin: origin, 'Content-Type': 'application/json' },
    body: JSON.stringify({ key: ROOT_KEY }),
  });
  const [cookie] = (response.headers.get('set-cookie') ?? '').split(';');
  if (response.status !== 200) throw new Error(`the sign-in failed: ${await response.text()}`);
  return new Promise((resolve, reject) => {
    const stream: ClientRequest = request(`${origin}/dashboard/events`, { headers: { cookie } });
    stream.on('error', reject);
    stream.on('response', (events) => {
      if (events.statusCode !== 200) reject(new Error(`no stream: ${events.statusCode}`));
      events.once('data', () => resolve({ close: () => stream.destroy() }));
      events.on('error', () => {});
      events.resume();
    });
    stream.end();
  });
}
