/**
 * An acceptor answers the requests of its connections on a thread of its own. It decides checks in
 * the counters that all acceptors share, or has a shard worker decide them, and forwards the other
 * operations to the main thread. One acceptor listens for all of them: see `listener.ts`.
 *
 * An error inside a request becomes its response. Any other error is thrown, and ends the process:
 * see `thread/acceptor.ts`.
 */

import { BodyScanner } from '../api/common/body-scanner.ts';
import { NamespaceFinder } from '../api/common/namespace-finder.ts';
import { ERROR_PAGES_PATH } from '../api/common/paths.ts';
import { RequestIds } from '../api/common/request-ids.ts';
import { type ByVersion, RESPONSE_FORMATS, type ResponseFormat } from '../api/common/versions.ts';
import { Keyring } from '../auth/keyring.ts';
import { GATEWAY_CONNECTIONS_SHARE } from '../core/constants.ts';
import { ApiError } from '../core/errors.ts';
import { DecisionThread } from '../decision-thread/decision-thread.ts';
import type { Publication } from '../registry/publication.ts';
import { Clock } from '../shared-memory/clock.ts';
import { Control } from '../shared-memory/control.ts';
import { ACCEPTOR_STAT, type AcceptorStats } from '../shared-memory/stats.ts';
import { apiRoutes, counterHandlers } from './api-routes.ts';
import { type AppDescriptors, type AppKind, Apps } from './apps.ts';
import { BodyBudget, BodyReader } from './body.ts';
import { CheckHandler } from './checks.ts';
import { CorrectionHandler } from './corrections.ts';
import { CounterOperations } from './counter-operations.ts';
import { DeferredResponses } from './deferred-responses.ts';
import { Docs } from './docs.ts';
import { ErrorReporter } from './error-reporter.ts';
import { ExplanationHandler } from './explanations.ts';
import { GatewayCheckHandler } from './gateway-checks.ts';
import { HoldHandler } from './holds.ts';
import { hasGatewayAddress, Listener } from './listener.ts';
import type { AcceptorData, ToAcceptor, ToMain } from './messages.ts';
import { type ApiServer, OperationForwarder } from './operation-forwarder.ts';
import { RepeatableRequests } from './repeatable-requests.ts';
import { Responder } from './responder.ts';
import { ResponseWriter } from './response-writer.ts';
import { mount } from './route.ts';
import { Turns } from './turns.ts';
import { createUnknownFieldReporter } from './unknown-field-reporter.ts';
import type { HttpResponse } from './uws.ts';

/** What an acceptor uses of the port to the main thread. */
interface MainThreadPort {
  postMessage(message: ToMain): void;
  on(event: 'message', listener: (message: ToAcceptor) => void): unknown;
}

const TOO_MANY_CONNECTIONS = new ApiError(
  'SERVICE_UNAVAILABLE',
  'the limit of open connections is reached',
);

export class Acceptor {
  /** Whether the main thread has closed it: its Apps are closed. */
  isClosed = false;
  readonly #data: AcceptorData;
  readonly #mainPort: MainThreadPort;
  readonly #onClosed: () => void;
  readonly #clock: Clock;
  readonly #stats: AcceptorStats;
  readonly #allStats: readonly AcceptorStats[];
  readonly #thread: DecisionThread;
  readonly #keyring: Keyring;
  readonly #responders: ByVersion<Responder>;
  readonly #gateway: GatewayCheckHandler;
  readonly #operations: OperationForwarder;
  readonly #counterOperations: CounterOperations;
  /** A new connection to the port is refused where all acceptors together have more open. */
  readonly #portConnectionsMax: number;
  readonly #apps: Apps;
  readonly #listener: Listener;

  /**
   * @param onClosed called when the main thread has closed the acceptor
   * @throws StartError when uWebSockets.js cannot use the TLS files
   */
  constructor(data: AcceptorData, mainPort: MainThreadPort, onClosed: () => void) {
    this.#data = data;
    this.#mainPort = mainPort;
    this.#onClosed = onClosed;
    const control = new Control(data.control);
    const stats = control.acceptorStats(data.index);
    const clock = new Clock(control);
    this.#clock = clock;
    this.#stats = stats;
    this.#allStats = control.httpStats();
    this.#keyring = new Keyring(clock);
    const requestIds = new RequestIds();
    const turns = new Turns(clock, stats);
    const memory = { control, stats, clock };
    this.#thread = new DecisionThread(data, memory, turns.addSteps, (it) => this.#send(it));
    const { engine, hasher, knownNamespaces, overrides, recorder } = this.#thread;
    const responseWriter = new ResponseWriter(stats, clock, turns);
    const bodyBudget = new BodyBudget();
    const errorReporter = data.isReportingErrors ? this.#createErrorReporter() : undefined;
    const createServer = (format: ResponseFormat): ApiServer => {
      const responder = new Responder(
        format,
        requestIds,
        stats,
        responseWriter,
        turns,
        data.url + ERROR_PAGES_PATH,
        (report) => this.#send({ kind: 'internalError', report }),
        errorReporter,
      );
      return { responder, bodyReader: new BodyReader(stats, bodyBudget, responder, turns) };
    };
    const servers = {
      v1: createServer(RESPONSE_FORMATS.v1),
      v2: createServer(RESPONSE_FORMATS.v2),
    };
    const responders = { v1: servers.v1.responder, v2: servers.v2.responder };
    this.#responders = responders;

    const finder = new NamespaceFinder(knownNamespaces);
    const keyring = this.#keyring;
    const deferredResponses = new DeferredResponses(clock, stats);
    const onUnknownFields = createUnknownFieldReporter(stats, (field) => {
      this.#send({ kind: 'unknownField', field });
    });
    this.#operations = new OperationForwarder(stats, servers, (number, request) => {
      this.#send({ kind: 'operation', number, request });
    });
    const shared = {
      onUnknownFields,
      keyring,
      finder,
      hasher,
      overrides,
      engine,
      clock,
      stats,
      recorder,
      repeatable: new RepeatableRequests(engine.requests, keyring, hasher, stats),
      deferredResponses,
      turns,
      operations: this.#operations,
      scanner: new BodyScanner(),
    };
    const checks = new CheckHandler({ ...shared, ids: requestIds, responders });
    const corrections = new CorrectionHandler({ ...shared, responder: responders.v1 });
    const holds = new HoldHandler({ ...shared, responder: responders.v1 });
    const explanations = new ExplanationHandler({ ...shared, responder: responders.v1 });
    this.#gateway = new GatewayCheckHandler({
      ...shared,
      knownNamespaces,
      responseWriter,
      responder: responders.v1,
    });
    const counters = counterHandlers(checks, corrections, explanations, holds);
    this.#counterOperations = new CounterOperations(
      keyring,
      counters,
      recorder,
      responders,
      (number, result) => {
        this.#send({ kind: 'counterResult', number, result });
      },
    );
    this.activate(data.activePublication);

    const hasGateway = hasGatewayAddress(data.addresses.gateway);
    // A share is for gateways alone: other clients cannot keep them out.
    this.#portConnectionsMax = Math.ceil(
      data.connectionsMax * (hasGateway ? 1 - GATEWAY_CONNECTIONS_SHARE : 1),
    );
    const gatewayRoutes = this.#gateway.routes(false);
    const portRoutes = [
      ...this.#gateway.routes(true),
      ...apiRoutes(keyring, servers, counters, data.mainRoutes, this.#operations, recorder),
    ];
    const docs = new Docs(responders.v1, data.url, data.isPublicUrl);
    this.#apps = new Apps(data.tls, hasGateway, (app, kind) => {
      const routes =
        kind === 'gateway'
          ? gatewayRoutes
          : [...portRoutes, ...docs.routes(kind === 'tls' ? 'https' : 'http')];
      mount(app, routes, responders, turns, errorReporter);
      app.filter((res, change) => this.#countConnection(res, change, kind));
    });
    this.#listener = new Listener(this.#apps);
  }

  /** Begins the heartbeat, serves the messages of the main thread and reports that it is ready. */
  start(): void {
    this.#thread.start();
    this.#mainPort.on('message', (message) => this.#receive(message));
    this.#send({ kind: 'ready', apps: this.#apps.descriptors() });
  }

  /** @param apps of all acceptors, which get the connections in turn */
  listen(apps: readonly AppDescriptors[]): void {
    const failed = this.#listener.listen(this.#data.addresses, apps);
    if (failed === undefined) this.#send({ kind: 'listening' });
    else this.#send({ kind: 'fatal', reason: `cannot listen on ${failed}` });
  }

  /** All of a publication is active from the next check on: no check comes in between. */
  activate(publication: Publication): void {
    const { deletedNamespaces = [], keys, policies } = publication;
    this.#thread.activate(publication);
    if (keys !== undefined) this.#keyring.apply(keys);
    if (policies !== undefined) this.#gateway.activate(policies);
    else if (deletedNamespaces.length > 0) this.#gateway.renewNamespaces();
  }

  /** Makes an App with the TLS files as they are now; connections come to it only later. */
  reloadTls(): void {
    try {
      this.#send({ kind: 'tlsReloaded', app: this.#apps.reloadTls(this.#data.tls!) });
    } catch (error) {
      this.#send({ kind: 'tlsReloadFailed', reason: (error as Error).message });
    }
  }

  /** Stops listening; every response from now on closes its connection. */
  drain(): void {
    this.#responders.v1.isDraining = true;
    this.#responders.v2.isDraining = true;
    this.#listener.close(
      () => this.#clock.monotonicMs(),
      // Connections that were distributed before this message arrive in this turn of the loop.
      () => setImmediate(() => this.#send({ kind: 'draining' })),
    );
  }

  /** Closes the Apps with all open connections, when no acceptor distributes to them any more. */
  close(): void {
    if (this.isClosed) return;
    this.#thread.stop();
    this.isClosed = true;
    this.#apps.close();
    this.#onClosed();
  }

  #receive(message: ToAcceptor): void {
    switch (message.kind) {
      case 'listen':
        this.listen(message.apps);
        break;
      case 'reloadTls':
        this.reloadTls();
        break;
      case 'distribute':
        this.#listener.distributeTo(message.apps);
        this.#send({ kind: 'distributing' });
        break;
      case 'publication':
        this.activate(message.publication);
        this.#send({ kind: 'activated', version: message.version });
        break;
      case 'result':
        this.#operations.complete(message.number, message.result);
        break;
      case 'counterOperation':
        this.#counterOperations.run(message.number, message.request);
        break;
      case 'notificationPort':
        this.#thread.engine.connectWorker(message.worker, message.port);
        break;
      case 'drain':
        this.drain();
        break;
      case 'close':
        this.close();
        break;
    }
  }

  #send(message: ToMain): void {
    this.#mainPort.postMessage(message);
  }

  #createErrorReporter(): ErrorReporter {
    const logDebug = (text: string, fields: object) =>
      this.#send({ kind: 'debug', record: { text, fields } });
    return new ErrorReporter(
      (report) => logDebug('error response', report),
      (omitted) => logDebug('error responses omitted: too many in one second', { omitted }),
    );
  }

  /** @param change 1 when a connection opens, -1 when it closes */
  #countConnection(res: HttpResponse, change: number, kind: AppKind): void {
    this.#stats.addConnections(change);
    if (change < 0) return;
    // Connections that other acceptors accept right now may be missing: a few pass the limit.
    const open = this.#allStats.reduce((sum, { connections }) => sum + connections, 0);
    const isGateway = kind === 'gateway';
    if (open <= (isGateway ? this.#data.connectionsMax : this.#portConnectionsMax)) return;
    this.#stats.increment(ACCEPTOR_STAT.shedConnections);
    // Behind TLS a response would need the handshake, which costs the most.
    if (kind === 'tls') res.close();
    // Sent before the first request, in the format of v1: no request of the connection is begun.
    else {
      res.cork(() => {
        this.#responders.v1.sendError(res, TOO_MANY_CONNECTIONS, { closeConnection: true });
      });
    }
  }
}
