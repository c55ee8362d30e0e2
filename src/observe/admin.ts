/**
 * The admin port: health, metrics, the dashboard, and a list of its paths. The main thread serves
 * it with Node's HTTP server. `/livez`: the process runs. `/readyz`: checks are answered; see
 * `readiness.ts`. `/metrics`: see `metrics.ts`. `/dashboard`: see `dashboard/dashboard.ts`.
 *
 * The first three are probes: they are answered under any header `Host`, but not under two. All
 * other paths are protected against DNS rebinding, by which a browser calls the port under an
 * attacker's name: `Host` must be an address, localhost or a configured name, and `Origin` must be
 * absent or the port's own.
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
import type { EngineHost } from '../engine/engine.ts';
import { AdminConnections } from './admin-connections.ts';
import type { FaultWatch, ReplicaStats } from './faults.ts';
import { type Readiness, readinessOf, type ServerState } from './readiness.ts';

/** Where the admin port reads from. Absent until the shard workers are started. */
export interface AdminSources {
  engine: Pick<EngineHost, 'stats'>;
  /** Where the registry is in Redis. */
  replica?: () => ReplicaStats;
  faults: Pick<FaultWatch, 'current' | 'past'>;
  metrics: { contentType: string; text(): Promise<string> };
  /** The dashboard, which is loaded when it is first requested. Absent where it is off. */
  loadPages?: () => Promise<AdminPages>;
}

/** Serves the paths of the dashboard, and its page at `/`. */
export interface AdminPages {
  /** Never rejects: a failure is a response. */
  respond(req: IncomingMessage, res: ServerResponse, path: string): Promise<void>;
}

/** `behind-tls`: pages may also come through a proxy with TLS, so their origin may have https. */
export type DashboardMode = 'off' | 'on' | 'behind-tls';

interface AdminResponse {
  status: number;
  type: string;
  text: string;
  headers?: Record<string, string>;
}

interface Route {
  path: string;
  /** For the list at `/`. */
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

const DASHBOARD_PATH = '/dashboard';

export class AdminServer {
  state: ServerState = 'starting';
  sources: AdminSources | undefined;
  readonly #server: Server;
  readonly #hosts: ReadonlySet<string>;
  readonly #dashboard: DashboardMode;
  readonly #connections = new AdminConnections();
  /** Connections with a request that is not answered yet. */
  readonly #busySockets = new WeakSet<Socket>();
  #metricsText: Promise<string> | undefined;
  #wasReady = false;
  readonly #routes: readonly Route[] = [
    {
      path: '/',
      description: 'the dashboard for browsers, if it is on; this list for other clients',
      isProbe: false,
      respond: () => jsonResponse(200, { paths: this.#listRoutes() }),
    },
    {
      path: '/livez',
      description: 'liveness: 200 while the process runs',
      isProbe: true,
      respond: () => jsonResponse(200, { status: 'alive' }),
    },
    {
      path: '/readyz',
      description:
        'readiness: 200 while checks are answered, with reasons where that is degraded; ' +
        '503 while weir starts, joins other machines, or drains',
      isProbe: true,
      respond: () => {
        const { isReady, body } = this.readiness();
        return jsonResponse(isReady ? 200 : 503, body);
      },
    },
    {
      path: '/metrics',
      description: 'metrics for Prometheus',
      isProbe: true,
      respond: () => this.#respondWithMetrics(),
    },
  ];

  /** @param hosts names accepted in the header `Host`, beside addresses and localhost */
  constructor(hosts: readonly string[], dashboard: DashboardMode) {
    this.#dashboard = dashboard;
    this.#hosts = new Set(['localhost', ...hosts].map((host) => host.toLowerCase()));
    const options: ServerOptions = {
      headersTimeout: ADMIN_REQUEST_TIMEOUT_MS,
      requestTimeout: ADMIN_REQUEST_TIMEOUT_MS,
      keepAliveTimeout: ADMIN_REQUEST_TIMEOUT_MS,
      connectionsCheckingInterval: ADMIN_REQUEST_TIMEOUT_MS / 5,
    };
    this.#server = createServer(options, (req, res) => void this.#handleRequest(req, res));
    // This closes connections whose client does not read its response.
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
    // Node reads pipelined requests before the first is answered: thousands of them in 64 KiB.
    if (this.#busySockets.has(req.socket)) {
      req.socket.destroy();
      return;
    }
    this.#busySockets.add(req.socket);
    res.once('finish', () => this.#busySockets.delete(req.socket));
    const path = (req.url ?? '').split('?', 1)[0];
    const route = this.#routes.find((known) => known.path === path);
    const isAllowed = this.#connections.allow(req.socket, route?.isProbe === true);
    // By the next turn, a pipelined request behind this one has closed the connection.
    await nextEventLoopTurn();
    if (req.socket.destroyed) return;
    const response = isAllowed
      ? await this.#respond(req, res, path, route)
      : this.#tooManyConnections();
    if (response === undefined) return;
    const { status, type, text, headers } = response;
    const length = Buffer.byteLength(text);
    res.writeHead(status, { 'Content-Type': type, 'Content-Length': length, ...headers });
    // Node sends no body to a HEAD request.
    res.end(text);
  }

  /** @returns undefined where the dashboard has responded */
  async #respond(
    req: IncomingMessage,
    res: ServerResponse,
    path: string,
    route: Route | undefined,
  ): Promise<AdminResponse | undefined> {
    if (countHosts(req) > 1) {
      const message = 'the header Host must occur once; got several';
      return errorResponse(400, message, { Connection: 'close' });
    }
    const reason = route?.isProbe ? undefined : this.#forbiddenReason(req);
    if (reason !== undefined) return errorResponse(403, reason);
    const isPage = path === '/' && acceptsHtml(req);
    if (isPage || path === DASHBOARD_PATH || path.startsWith(`${DASHBOARD_PATH}/`)) {
      if (this.#dashboard !== 'off') return this.#respondWithDashboard(req, res, path);
      if (!isPage) {
        return errorResponse(404, `there is no ${path}: the dashboard is off (WEIR_DASHBOARD)`);
      }
    }
    if (route === undefined) {
      return errorResponse(404, `there is no ${path}; paths: ${this.#paths().join(', ')}`);
    }
    if (req.method !== 'GET' && req.method !== 'HEAD') {
      const message = `${path} accepts the methods GET and HEAD; got ${req.method}`;
      return errorResponse(405, message, { Allow: 'GET, HEAD' });
    }
    return route.respond();
  }

  #paths(): string[] {
    return this.#routes.map(({ path }) => path);
  }

  #listRoutes(): object[] {
    return this.#routes.map(({ path, description }) => ({ path, description }));
  }

  async #respondWithDashboard(
    req: IncomingMessage,
    res: ServerResponse,
    path: string,
  ): Promise<AdminResponse | undefined> {
    const load = this.sources?.loadPages;
    if (load === undefined) {
      return errorResponse(503, 'weir is starting; there is no dashboard yet', {
        'Retry-After': RETRY_AFTER_S,
      });
    }
    let pages: AdminPages;
    try {
      pages = await load();
    } catch (error) {
      return errorResponse(500, `the dashboard cannot be loaded: ${(error as Error).message}`);
    }
    await pages.respond(req, res, path);
    return undefined;
  }

  /** Keeps a connection from being closed as the one that has been idle for the longest time. */
  keepConnection(socket: Socket): void {
    this.#connections.touch(socket);
  }

  #tooManyConnections(): AdminResponse {
    const probes = this.#routes.filter(({ isProbe }) => isProbe).map(({ path }) => path);
    const message = `too many connections are open; this one serves ${probes.join(', ')} only`;
    return errorResponse(503, message, { Connection: 'close', 'Retry-After': RETRY_AFTER_S });
  }

  async #respondWithMetrics(): Promise<AdminResponse> {
    if (this.sources === undefined)
      return errorResponse(503, 'weir is starting; there are no metrics yet');
    const { metrics } = this.sources;
    // All requests that arrive before the text is begun share it, so that many cost as one.
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

  readiness(): Readiness {
    const { engine, replica, faults } = this.sources ?? {};
    const readiness = readinessOf(
      this.state,
      engine?.stats(),
      replica?.(),
      { current: faults?.current() ?? [], past: faults?.past() ?? [] },
      this.#wasReady,
    );
    this.#wasReady ||= readiness.isReady;
    return readiness;
  }

  /** @returns why the request is rejected; undefined where it is not */
  #forbiddenReason({ headers: { host = '', origin } }: IncomingMessage): string | undefined {
    const name = host.replace(/:\d+$/, '').toLowerCase();
    const isAddress = isIP(name.replace(/^\[(.*)\]$/, '$1')) !== 0;
    if (!isAddress && !this.#hosts.has(name)) {
      const names = [...this.#hosts].filter((known) => isIP(known) === 0);
      return (
        `the header Host must have an IP address or one of the names ${names.join(', ')}` +
        ` (WEIR_ADMIN_HOSTS adds names); got ${formatValue(name)}`
      );
    }
    const own = `http://${host.toLowerCase()}`;
    if (origin === undefined || origin.toLowerCase() === own) return undefined;
    const isBehindTls = this.#dashboard === 'behind-tls';
    if (isBehindTls && origin.toLowerCase() === `https://${host.toLowerCase()}`) return undefined;
    return `the header Origin must be ${formatValue(own)} or absent; got ${formatValue(origin)}`;
  }
}

/** Node uses the first one of several headers. */
function countHosts({ rawHeaders }: IncomingMessage): number {
  return rawHeaders.filter((name, i) => i % 2 === 0 && name.toLowerCase() === 'host').length;
}

/** Whether a browser asks for a page. */
function acceptsHtml({ headers: { accept = '' } }: IncomingMessage): boolean {
  return /\btext\/html\b/i.test(accept);
}

function nextEventLoopTurn(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}
