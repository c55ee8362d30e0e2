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
import { ADMIN_REQUEST_TIMEOUT_MS } from '../core/constants.ts';
import { formatValue } from '../core/describe.ts';
import { AdminConnections } from './admin-connections.ts';

export type AdminState = 'starting' | 'ready' | 'draining';

/** What the admin port reports on, as soon as it exists. */
export interface AdminSources {
  workers: { workerCount: number; runningCount: number; replacementCount: number };
  metrics: { contentType: string; text(): Promise<string> };
}

interface AdminResponse {
  status: number;
  type: string;
  text: string;
  headers?: Record<string, string>;
}

interface Route {
  path: string;
  /** What it is, for the list at `/`. */
  description: string;
  isProbe: boolean;
  respond: () => AdminResponse | Promise<AdminResponse>;
}

const jsonResponse = (status: number, body: object): AdminResponse => {
  return { status, type: 'application/json', text: JSON.stringify(body) };
};
const errorResponse = (
  status: number,
  error: string,
  headers: Record<string, string> = {},
): AdminResponse => {
  return { ...jsonResponse(status, { error }), headers };
};

const RETRY_AFTER_S = '1';

export class AdminServer {
  state: AdminState = 'starting';
  sources: AdminSources | undefined;
  readonly #server: Server;
  readonly #hosts: ReadonlySet<string>;
  readonly #connections = new AdminConnections();
  /** Connections with a request that is not answered. */
  readonly #busySockets = new WeakSet<Socket>();
  #metricsText: Promise<string> | undefined;
  readonly #routes: readonly Route[] = [
    {
      path: '/',
      description: 'this list',
      isProbe: false,
      respond: () => ({ status: 200, type: 'text/plain; charset=utf-8', text: this.#listRoutes() }),
    },
    {
      path: '/livez',
      description: 'liveness: 200 while the process runs',
      isProbe: true,
      respond: () => jsonResponse(200, { status: 'alive' }),
    },
    {
      path: '/readyz',
      description: 'readiness: 200 while checks are answered, 503 while weir starts or drains',
      isProbe: true,
      respond: () => jsonResponse(this.state === 'ready' ? 200 : 503, this.#readiness()),
    },
    {
      path: '/metrics',
      description: 'metrics for Prometheus',
      isProbe: true,
      respond: () => this.#respondWithMetrics(),
    },
  ];

  /** @param hosts names that the header `Host` may have, beside addresses and localhost */
  constructor(hosts: readonly string[]) {
    this.#hosts = new Set(['localhost', ...hosts].map((host) => host.toLowerCase()));
    const options: ServerOptions = {
      headersTimeout: ADMIN_REQUEST_TIMEOUT_MS,
      requestTimeout: ADMIN_REQUEST_TIMEOUT_MS,
      keepAliveTimeout: ADMIN_REQUEST_TIMEOUT_MS,
      connectionsCheckingInterval: ADMIN_REQUEST_TIMEOUT_MS / 5,
    };
    this.#server = createServer(options, (req, res) => void this.#handleRequest(req, res));
    // Of a client that does not read its answer.
    this.#server.timeout = ADMIN_REQUEST_TIMEOUT_MS;
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

  async #handleRequest(req: IncomingMessage, res: ServerResponse): Promise<void> {
    // Node reads on behind a request that is not answered: thousands of answers from 64 KiB.
    if (this.#busySockets.has(req.socket)) {
      req.socket.destroy();
      return;
    }
    this.#busySockets.add(req.socket);
    res.once('finish', () => this.#busySockets.delete(req.socket));
    const path = (req.url ?? '').split('?', 1)[0];
    const route = this.#routes.find((known) => known.path === path);
    const isAdmitted = this.#connections.allow(req.socket, route?.isProbe === true);
    // A request that came right behind this one has closed the connection by then.
    await nextEventLoopTurn();
    if (req.socket.destroyed) return;
    const answer = isAdmitted ? await this.#respond(req, path, route) : this.#tooManyConnections();
    const { status, type, text, headers } = answer;
    const length = Buffer.byteLength(text);
    res.writeHead(status, { 'Content-Type': type, 'Content-Length': length, ...headers });
    // To a HEAD request Node.js sends the head alone.
    res.end(text);
  }

  async #respond(
    req: IncomingMessage,
    path: string,
    route: Route | undefined,
  ): Promise<AdminResponse> {
    const fault = route?.isProbe ? undefined : this.#forbiddenReason(req);
    if (fault !== undefined) return errorResponse(403, fault);
    if (route === undefined) {
      return errorResponse(404, `there is no ${path}; there are ${this.#paths().join(', ')}`);
    }
    if (req.method !== 'GET' && req.method !== 'HEAD') {
      const message = `${path} takes the methods GET and HEAD, not ${req.method}`;
      return errorResponse(405, message, { Allow: 'GET, HEAD' });
    }
    return route.respond();
  }

  #paths(): string[] {
    return this.#routes.map(({ path }) => path);
  }

  #listRoutes(): string {
    const width = Math.max(...this.#paths().map(({ length }) => length));
    return this.#routes
      .map(({ path, description }) => `${path.padEnd(width)}  ${description}\n`)
      .join('');
  }

  #tooManyConnections(): AdminResponse {
    const probes = this.#routes.filter(({ isProbe }) => isProbe).map(({ path }) => path);
    const message = `too many connections are open; this one serves ${probes.join(', ')} only`;
    return errorResponse(503, message, { Connection: 'close', 'Retry-After': RETRY_AFTER_S });
  }

  async #respondWithMetrics(): Promise<AdminResponse> {
    if (this.sources === undefined)
      return errorResponse(503, 'weir starts; there are no metrics yet');
    const { metrics } = this.sources;
    // One text for all requests that have come before it is begun, so that many cost as one.
    this.#metricsText ??= nextEventLoopTurn().then(() => {
      this.#metricsText = undefined;
      return metrics.text();
    });
    try {
      return { status: 200, type: metrics.contentType, text: await this.#metricsText };
    } catch (error) {
      return errorResponse(500, (error as Error).message);
    }
  }

  #readiness(): object {
    if (this.sources === undefined) return { status: this.state };
    const {
      workerCount: wanted,
      runningCount: running,
      replacementCount: replaced,
    } = this.sources.workers;
    const isDegraded = this.state === 'ready' && running < wanted;
    return {
      status: isDegraded ? 'degraded' : this.state,
      workers: { wanted, running, replaced },
    };
  }

  /** @returns why a request is refused, if it is */
  #forbiddenReason({ headers: { host = '', origin } }: IncomingMessage): string | undefined {
    const name = host.replace(/:\d+$/, '').toLowerCase();
    const isAddress = isIP(name.replace(/^\[(.*)\]$/, '$1')) !== 0;
    if (!isAddress && !this.#hosts.has(name)) {
      const names = [...this.#hosts].filter((known) => isIP(known) === 0);
      const accepted = `IP addresses, ${names.join(', ')} (WEIR_ADMIN_HOSTS adds names)`;
      return `the header Host has the name ${formatValue(name)}; accepted are ${accepted}`;
    }
    const own = `http://${host.toLowerCase()}`;
    if (origin === undefined || origin.toLowerCase() === own) return undefined;
    return `the header Origin is ${formatValue(origin)}; accepted is ${formatValue(own)}, or none`;
  }
}

function nextEventLoopTurn(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}
