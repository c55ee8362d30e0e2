/**
 * The admin port: health, metrics, and a list of what is there. The main thread serves it, off the
 * path of a check, with Node's own server. `/livez`: the process runs. `/readyz`: checks are
 * answered; 503 while weir starts or drains. While a shard worker is being replaced it says
 * `degraded`, with a 200, because checks are answered all the same. `/metrics`: see `metrics.ts`.
 *
 * These three are probes: they are answered whatever the header `Host` says. All other paths are
 * protected against DNS rebinding, by which a browser calls the port under a name of an attacker:
 * `Host` must be an address, localhost or a configured name, and `Origin` must not be foreign.
 */

import {
  createServer,
  type IncomingMessage,
  type Server,
  type ServerOptions,
  type ServerResponse,
} from 'node:http';
import { type AddressInfo, isIP, type Socket } from 'node:net';
import { describe } from '../describe.ts';
import { ADMIN_REQUEST_MS } from '../limits.ts';
import { AdminConnections } from './admin-connections.ts';

export type State = 'starting' | 'ready' | 'draining';

/** What the admin port reports on, as soon as it exists. */
export interface Observed {
  workers: { wanted: number; running: number; replaced: number };
  metrics: { contentType: string; text(): Promise<string> };
}

interface Answer {
  status: number;
  type: string;
  text: string;
  headers?: Record<string, string>;
}

interface Route {
  path: string;
  /** What it is, for the list at `/`. */
  meaning: string;
  isProbe: boolean;
  answer: () => Answer | Promise<Answer>;
}

const json = (status: number, body: object): Answer => {
  return { status, type: 'application/json', text: JSON.stringify(body) };
};
const failure = (status: number, error: string, headers: Record<string, string> = {}): Answer => {
  return { ...json(status, { error }), headers };
};

const RETRY_AFTER_S = '1';

export class Admin {
  state: State = 'starting';
  observed: Observed | undefined;
  readonly #server: Server;
  readonly #hosts: ReadonlySet<string>;
  readonly #connections = new AdminConnections();
  /** Connections with a request that is not answered. */
  readonly #busy = new WeakSet<Socket>();
  #text: Promise<string> | undefined;
  readonly #routes: readonly Route[] = [
    {
      path: '/',
      meaning: 'this list',
      isProbe: false,
      answer: () => ({ status: 200, type: 'text/plain; charset=utf-8', text: this.#list() }),
    },
    {
      path: '/livez',
      meaning: 'liveness: 200 while the process runs',
      isProbe: true,
      answer: () => json(200, { status: 'alive' }),
    },
    {
      path: '/readyz',
      meaning: 'readiness: 200 while checks are answered, 503 while weir starts or drains',
      isProbe: true,
      answer: () => json(this.state === 'ready' ? 200 : 503, this.#readiness()),
    },
    {
      path: '/metrics',
      meaning: 'metrics for Prometheus',
      isProbe: true,
      answer: () => this.#metrics(),
    },
  ];

  /** @param hosts names that the header `Host` may have, beside addresses and localhost */
  constructor(hosts: readonly string[]) {
    this.#hosts = new Set(['localhost', ...hosts].map((host) => host.toLowerCase()));
    const options: ServerOptions = {
      headersTimeout: ADMIN_REQUEST_MS,
      requestTimeout: ADMIN_REQUEST_MS,
      keepAliveTimeout: ADMIN_REQUEST_MS,
      connectionsCheckingInterval: ADMIN_REQUEST_MS / 5,
    };
    this.#server = createServer(options, (req, res) => void this.#serve(req, res));
    // Of a client that does not read its answer.
    this.#server.timeout = ADMIN_REQUEST_MS;
    this.#server.on('connection', (socket) => this.#connections.add(socket));
  }

  /** @returns the port. Rejects when the port is not available. */
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

  async #serve(req: IncomingMessage, res: ServerResponse): Promise<void> {
    // Node reads on behind a request that is not answered: thousands of answers from 64 KiB.
    if (this.#busy.has(req.socket)) {
      req.socket.destroy();
      return;
    }
    this.#busy.add(req.socket);
    res.once('finish', () => this.#busy.delete(req.socket));
    const path = (req.url ?? '').split('?', 1)[0];
    const route = this.#routes.find((known) => known.path === path);
    const isAdmitted = this.#connections.admit(req.socket, route?.isProbe === true);
    // A request that came right behind this one has closed the connection by then.
    await nextTurn();
    if (req.socket.destroyed) return;
    const answer = isAdmitted ? await this.#answer(req, path, route) : this.#tooMany();
    const { status, type, text, headers } = answer;
    const length = Buffer.byteLength(text);
    res.writeHead(status, { 'Content-Type': type, 'Content-Length': length, ...headers });
    // To a HEAD request Node.js sends the head alone.
    res.end(text);
  }

  async #answer(req: IncomingMessage, path: string, route: Route | undefined): Promise<Answer> {
    const fault = route?.isProbe ? undefined : this.#foreign(req);
    if (fault !== undefined) return failure(403, fault);
    if (route === undefined) {
      return failure(404, `there is no ${path}; there are ${this.#paths().join(', ')}`);
    }
    if (req.method !== 'GET' && req.method !== 'HEAD') {
      const message = `${path} takes the methods GET and HEAD, not ${req.method}`;
      return failure(405, message, { Allow: 'GET, HEAD' });
    }
    return route.answer();
  }

  #paths(): string[] {
    return this.#routes.map(({ path }) => path);
  }

  #list(): string {
    const width = Math.max(...this.#paths().map(({ length }) => length));
    return this.#routes.map(({ path, meaning }) => `${path.padEnd(width)}  ${meaning}\n`).join('');
  }

  #tooMany(): Answer {
    const probes = this.#routes.filter(({ isProbe }) => isProbe).map(({ path }) => path);
    const message = `too many connections are open; this one serves ${probes.join(', ')} only`;
    return failure(503, message, { Connection: 'close', 'Retry-After': RETRY_AFTER_S });
  }

  async #metrics(): Promise<Answer> {
    if (this.observed === undefined) return failure(503, 'weir starts; there are no metrics yet');
    const { metrics } = this.observed;
    // One text for all requests that have come before it is begun, so that many cost as one.
    this.#text ??= nextTurn().then(() => {
      this.#text = undefined;
      return metrics.text();
    });
    try {
      return { status: 200, type: metrics.contentType, text: await this.#text };
    } catch (error) {
      return failure(500, (error as Error).message);
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

  /** @returns why a request is refused, if it is */
  #foreign({ headers: { host = '', origin } }: IncomingMessage): string | undefined {
    const name = host.replace(/:\d+$/, '').toLowerCase();
    const isAddress = isIP(name.replace(/^\[(.*)\]$/, '$1')) !== 0;
    if (!isAddress && !this.#hosts.has(name)) {
      const names = [...this.#hosts].filter((known) => isIP(known) === 0);
      const accepted = `IP addresses, ${names.join(', ')} (WEIR_ADMIN_HOSTS adds names)`;
      return `the header Host has the name ${describe(name)}; accepted are ${accepted}`;
    }
    const own = `http://${host.toLowerCase()}`;
    if (origin === undefined || origin.toLowerCase() === own) return undefined;
    return `the header Origin is ${describe(origin)}; accepted is ${describe(own)}, or none`;
  }
}

function nextTurn(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}
