/**
 * A thread of the rate limit service: answers gRPC calls and requests to /json of its connections.
 * An error inside a call becomes its status. Any other error is thrown, and ends the process: see
 * `thread/rls.ts`.
 */

import { RLS_HITS_INTERVAL_MS, RLS_MESSAGE_MAX_BYTES } from '../core/constants.ts';
import { DecisionThread } from '../decision-thread/decision-thread.ts';
import type { Publication } from '../registry/publication.ts';
import { Clock } from '../shared-memory/clock.ts';
import { Control } from '../shared-memory/control.ts';
import { ACCEPTOR_STAT, type AcceptorStats } from '../shared-memory/stats.ts';
import type { AnswerReceiver } from './call.ts';
import { HitCounts } from './hit-counts.ts';
import { JsonHandler } from './json-handler.ts';
import { JsonServer } from './json-server.ts';
import type { FromRlsThread, RlsThreadData, RlsTlsContents, ToRlsThread } from './messages.ts';
import { RateLimitService } from './rate-limit-service.ts';
import type { UnaryMethod } from './transport/call.ts';
import { GrpcServer, type TlsFiles } from './transport/grpc-server.ts';
import { HealthService } from './transport/health.ts';
import type { GrpcError } from './transport/status.ts';
import { RequestReader } from './wire/request.ts';
import { ResponseWriter } from './wire/response.ts';

const SERVICE = 'envoy.service.ratelimit.v3.RateLimitService';
const SHOULD_RATE_LIMIT = `/${SERVICE}/ShouldRateLimit`;

/** '' is the server; envoyproxy/ratelimit has the last name. */
const HEALTH_SERVICES = ['', SERVICE, 'ratelimit'];

/** What a thread uses of the port to the main thread. */
interface MainThreadPort {
  postMessage(message: FromRlsThread): void;
  on(event: 'message', listener: (message: ToRlsThread) => void): unknown;
}

export class RlsThread {
  readonly #data: RlsThreadData;
  readonly #mainPort: MainThreadPort;
  readonly #onClosed: () => void;
  readonly #stats: AcceptorStats;
  readonly #thread: DecisionThread;
  readonly #hits = new HitCounts();
  readonly #service: RateLimitService;
  readonly #health = new HealthService(HEALTH_SERVICES);
  /** On the port. */
  readonly #portServer: GrpcServer | undefined;
  /** On the Unix socket, which has no TLS. */
  readonly #socketServer: GrpcServer | undefined;
  readonly #jsonServer: JsonServer | undefined;
  #isDraining = false;
  #isClosed = false;
  readonly #hitsTimer: NodeJS.Timeout;

  /** @param onClosed called when the main thread has closed the thread */
  constructor(data: RlsThreadData, mainPort: MainThreadPort, onClosed: () => void) {
    const { settings, listeners, tls } = data;
    this.#data = data;
    this.#mainPort = mainPort;
    this.#onClosed = onClosed;
    const control = new Control(data.control);
    const stats = control.acceptorStats(data.index);
    this.#stats = stats;
    const memory = { control, stats, clock: new Clock(control) };
    this.#thread = new DecisionThread(
      data,
      memory,
      () => {},
      (it) => this.#send(it),
    );
    this.#service = new RateLimitService(this.#thread, settings, this.#hits, (report) => {
      this.#send({ kind: 'internalError', report });
    });
    const json = new JsonHandler(this.#service, {
      isServing: () => !this.#isDraining,
      onFault: () => stats.increment(ACCEPTOR_STAT.rlsFaults),
    });
    const options = {
      unary: { [SHOULD_RATE_LIMIT]: this.#shouldRateLimit(), ...this.#health.unary },
      serverStreaming: this.#health.serverStreaming,
      maxMessageBytes: RLS_MESSAGE_MAX_BYTES,
      onConnection: (change: 1 | -1) => this.#countConnection(change),
      onError: ({ message, stack }: Error) => {
        this.#send({ kind: 'internalError', report: { requestId: undefined, message, stack } });
      },
    };
    const { port, socket, jsonPort } = listeners;
    const secured = tls && { tls: tlsFiles(tls), http1: json.handle };
    if (port !== undefined) this.#portServer = new GrpcServer({ ...options, ...secured });
    if (socket !== undefined) this.#socketServer = new GrpcServer(options);
    if (jsonPort !== undefined) {
      this.#jsonServer = new JsonServer({ ...options, handler: json.handle });
    }
    this.#thread.activate(data.activePublication);
    this.#service.activate(data.configuration);
    this.#hitsTimer = setInterval(() => this.#sendHits(), RLS_HITS_INTERVAL_MS);
  }

  /** Begins the heartbeat, serves the messages of the main thread and reports that it is ready. */
  start(): void {
    this.#thread.start();
    this.#mainPort.on('message', (message) => this.#receive(message));
    this.#send({ kind: 'ready' });
  }

  async #listen(): Promise<void> {
    const { host, port, socket, jsonPort, isPortShared } = this.#data.listeners;
    let address = '';
    try {
      address = `${host}:${port} (WEIR_RLS_PORT)`;
      await this.#portServer?.listen({ host, port: port!, reusePort: isPortShared });
      address = `${socket} (WEIR_RLS_SOCKET)`;
      await this.#socketServer?.listen({ path: socket! });
      address = `${host}:${jsonPort} (WEIR_RLS_JSON_PORT)`;
      await this.#jsonServer?.listen(host, jsonPort!);
    } catch (error) {
      const reason = `cannot listen on ${address}: ${(error as Error).message}`;
      this.#send({ kind: 'fatal', reason });
      return;
    }
    this.#send({ kind: 'listening' });
  }

  #activate(publication: Publication): void {
    this.#thread.activate(publication);
    if ((publication.deletedNamespaces ?? []).length > 0) this.#service.renewNamespaces();
  }

  /** Stops listening. Connections get no further calls, and end when their calls are answered. */
  #drain(): void {
    this.#isDraining = true;
    this.#health.setServing(false);
    this.#jsonServer?.drain();
    void this.#portServer?.drain();
    void this.#socketServer?.drain();
    this.#send({ kind: 'draining' });
  }

  #close(): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    clearInterval(this.#hitsTimer);
    this.#thread.stop();
    this.#sendHits();
    this.#jsonServer?.close();
    this.#portServer?.close();
    this.#socketServer?.close();
    this.#onClosed();
  }

  #receive(message: ToRlsThread): void {
    switch (message.kind) {
      case 'listen':
        void this.#listen();
        break;
      case 'configuration':
        this.#service.activate(message.configuration);
        this.#send({ kind: 'configured', version: message.version });
        break;
      case 'tls':
        this.#portServer?.setTls(tlsFiles(message.contents));
        break;
      case 'publication':
        this.#activate(message.publication);
        this.#send({ kind: 'activated', version: message.version });
        break;
      case 'notificationPort':
        this.#thread.engine.connectWorker(message.worker, message.port);
        break;
      case 'drain':
        this.#drain();
        break;
      case 'close':
        this.#close();
        break;
    }
  }

  /** @returns false: the connection is one too many */
  #countConnection(change: 1 | -1): boolean {
    const stats = this.#stats;
    if (change > 0 && stats.connections >= this.#data.connectionsMax) {
      stats.increment(ACCEPTOR_STAT.shedConnections);
      return false;
    }
    stats.addConnections(change);
    return true;
  }

  #shouldRateLimit(): UnaryMethod {
    const reader = new RequestReader();
    const writer = new ResponseWriter();
    return (message, call) => {
      try {
        reader.read(message);
      } catch (error) {
        this.#stats.increment(ACCEPTOR_STAT.rlsFaults);
        throw error;
      }
      const receiver: AnswerReceiver = {
        writer,
        respond: (answer) => call.respond(answer),
        fail: (error: GrpcError) => call.fail(error),
      };
      this.#service.handle(reader, receiver);
    };
  }

  #sendHits(): void {
    const added = this.#hits.take();
    if (added !== undefined) this.#send({ kind: 'hits', added });
  }

  #send(message: FromRlsThread): void {
    this.#mainPort.postMessage(message);
  }
}

function tlsFiles({ cert, key, clientCa }: RlsTlsContents): TlsFiles {
  return {
    cert: Buffer.from(cert),
    key: Buffer.from(key),
    clientCa: clientCa === undefined ? undefined : Buffer.from(clientCa),
  };
}
