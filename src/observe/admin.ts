/**
 * Health and metrics, on a port of its own, served by the main thread: off the path of a check, so
 * by Node's own server. `/livez`: the process runs. `/readyz`: it takes checks; 503 while it starts
 * or drains. While a shard worker is being replaced it says `degraded`, with a 200: checks are
 * answered all the same. `/metrics`: see `metrics.ts`.
 *
 * A browser on this machine could be made to call it under a name of an attacker's, so a request is
 * refused that names a foreign `Host`, other than by address, or comes from another `Origin`. Its
 * connections are bounded, and those beyond closed; one has not long to ask.
 */

import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import { type AddressInfo, isIP } from 'node:net';
import { ADMIN_CONNECTIONS_MAX, ADMIN_REQUEST_MS } from '../limits.ts';

export type State = 'starting' | 'ready' | 'draining';

/** What the admin port tells of, once it is there. */
export interface Observed {
  workers: { wanted: number; running: number; replaced: number };
  metrics: { contentType: string; text(): Promise<string> };
}

export class Admin {
  state: State = 'starting';
  observed: Observed | undefined;
  readonly #server: Server;
  readonly #names: Set<string>;

  /** @param host the configured address, which callers may name beside those of this machine */
  constructor(host: string) {
    this.#names = new Set(['localhost', host.toLowerCase()]);
    const options = {
      headersTimeout: ADMIN_REQUEST_MS,
      requestTimeout: ADMIN_REQUEST_MS,
      keepAliveTimeout: ADMIN_REQUEST_MS,
      connectionsCheckingInterval: ADMIN_REQUEST_MS / 5,
    };
    this.#server = createServer(options, (req, res) => this.#answer(req, res));
    this.#server.maxConnections = ADMIN_CONNECTIONS_MAX;
  }

  /** @returns the port. Rejects when it cannot be had. */
  listen(host: string, port: number): Promise<number> {
    return new Promise((resolve, reject) => {
      this.#server.once('error', reject);
      this.#server.listen({ host, port, exclusive: true }, () => {
        resolve((this.#server.address() as AddressInfo).port);
      });
    });
  }

  close(): void {
    this.#server.close();
    this.#server.closeAllConnections();
  }

  #answer(req: IncomingMessage, res: ServerResponse): void {
    // To a HEAD request Node.js sends the head alone.
    const sendText = (status: number, type: string, text: string) => {
      res.writeHead(status, { 'Content-Type': type, 'Content-Length': Buffer.byteLength(text) });
      res.end(text);
    };
    const send = (status: number, body: object) => {
      sendText(status, 'application/json', JSON.stringify(body));
    };
    if (!this.#isLocal(req)) {
      send(403, { error: 'the header Host or Origin is foreign to the admin port' });
    } else if (req.method !== 'GET' && req.method !== 'HEAD') {
      send(405, { error: `${req.url} takes the method GET` });
    } else if (req.url === '/livez') {
      send(200, { status: 'alive' });
    } else if (req.url === '/readyz') {
      send(this.state === 'ready' ? 200 : 503, this.#readiness());
    } else if (req.url === '/metrics' && this.observed !== undefined) {
      const { metrics } = this.observed;
      metrics.text().then(
        (text) => sendText(200, metrics.contentType, text),
        (error: Error) => send(500, { error: error.message }),
      );
    } else {
      send(404, { error: `there is no ${req.url}; there are /livez, /readyz and /metrics` });
    }
  }

  #readiness(): object {
    if (this.observed === undefined) return { status: this.state };
    const { wanted, running, replaced } = this.observed.workers;
    const isDegraded = this.state === 'ready' && running < wanted;
    return {
      status: isDegraded ? 'degraded' : this.state,
      workers: { wanted, running, replaced },
    };
  }

  #isLocal({ headers: { host = '', origin } }: IncomingMessage): boolean {
    const name = host.replace(/:\d+$/, '').toLowerCase();
    const isAddress = isIP(name.replace(/^\[(.*)\]$/, '$1')) !== 0;
    if (!isAddress && !this.#names.has(name)) return false;
    return origin === undefined || origin.toLowerCase() === `http://${host.toLowerCase()}`;
  }
}
