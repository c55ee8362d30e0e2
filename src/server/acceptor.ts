/**
 * An acceptor: the thread that answers checks on its connections, decided here or by a shard
 * worker. Started by the main thread, which it tells when it is ready; one of them is told to
 * listen for all (`listener.ts`). It shares the counters with all of them.
 *
 * Whatever it does not catch is fatal for the process: a limiter with half of its threads is worse
 * than a restarted one. The main thread hears of it and ends the process; a thread that would end
 * untold waits for that, since connections are still handed on to its App.
 */

import { parentPort, workerData } from 'node:worker_threads';
import { NamespaceFinder } from '../api/common/namespace-finder.ts';
import { OPERATION_NAMES, OPERATIONS, operationPath } from '../api/common/operations.ts';
import { RequestIds } from '../api/common/request-ids.ts';
import { RESPONSE_FORMATS, type ResponseFormat } from '../api/common/versions.ts';
import { type Key, Keyring } from '../auth/keyring.ts';
import {
  BODY_MAX_BYTES,
  GATEWAY_CONNECTIONS_SHARE,
  HEARTBEAT_MS,
  MULTI_LIMIT_MAX_BYTES,
} from '../core/constants.ts';
import { formatValue } from '../core/describe.ts';
import { ApiError, StartError } from '../core/errors.ts';
import { Hasher } from '../core/hash.ts';
import { ActiveOverrides } from '../overrides/active.ts';
import { KnownNamespaces } from '../registry/known-namespaces.ts';
import type { Publication } from '../registry/publication.ts';
import { Clock } from '../shared-memory/clock.ts';
import { Control } from '../shared-memory/control.ts';
import { ACCEPTOR_STAT } from '../shared-memory/stats.ts';
import { type AppDescriptors, type AppKind, Apps } from './apps.ts';
import { BodyBudget, type BodyHandler, BodyReader } from './body.ts';
import { CheckHandler } from './checks.ts';
import { CorrectionHandler } from './corrections.ts';
import { createEngine } from './create-engine.ts';
import { DeferredResponses } from './deferred-responses.ts';
import { DOCS_PATH, docsPages } from './docs.ts';
import { ErrorReporter } from './error-reporter.ts';
import { GatewayCheckHandler } from './gateway.ts';
import { hasGatewayAddress, Listener } from './listener.ts';
import type { AcceptorData, ToAcceptor, ToMain } from './messages.ts';
import { type ApiServer, OperationForwarder } from './operation-forwarder.ts';
import { type InternalErrorReport, Responder } from './responder.ts';
import { ResponseWriter } from './response-writer.ts';
import { type Handler, mount, type Route } from './route.ts';
import { fixedText, type HttpResponse } from './uws.ts';

const data: AcceptorData = workerData;
const mainPort = parentPort!;
const sendToMain = (message: ToMain) => mainPort.postMessage(message);

process.on('uncaughtException', (error) => {
  const why = `acceptor ${data.index} failed: ${error.stack}`;
  sendToMain({ kind: 'fatal', sentence: error instanceof StartError ? error.message : why });
});

const control = new Control(data.control);
const stats = control.acceptorStats(data.index);
const clock = new Clock(control);
const hasher = new Hasher(data.hashKey);
const namespaces = new KnownNamespaces(
  (name) => hasher.namespace(name),
  (row) => stats.namespaceRow(row),
  (name) => sendToMain({ kind: 'namespace', name }),
);
const keyring = new Keyring(clock);
const overrides = new ActiveOverrides();
const finder = new NamespaceFinder(namespaces);

const ids = new RequestIds();
const responseWriter = new ResponseWriter(stats);
const bodyBudget = new BodyBudget();
const logDebug = (text: string, fields: object) =>
  sendToMain({ kind: 'debug', record: { text, fields } });
const errorReporter = data.isReportingErrors
  ? new ErrorReporter(
      (report) => logDebug('answered with an error', report),
      (leftOut) => logDebug('error answers were not logged: too many in a second', { leftOut }),
    )
  : undefined;
const createApiServer = (format: ResponseFormat): ApiServer => {
  const fail = (failure: InternalErrorReport) => sendToMain({ kind: 'failure', failure });
  const responder = new Responder(
    format,
    ids,
    stats,
    responseWriter,
    data.url + DOCS_PATH,
    fail,
    errorReporter,
  );
  const bodyReader = new BodyReader(stats, bodyBudget, responder);
  return { responder, bodyReader };
};
const v1 = createApiServer(RESPONSE_FORMATS.v1);
const v2 = createApiServer(RESPONSE_FORMATS.v2);

const engine = createEngine(data.engine, data.index, control, clock);
const deferredResponses = new DeferredResponses(clock, stats);
const dependencies = {
  ...{ keyring, namespaces: finder, hasher, overrides, engine, clock, stats, deferredResponses },
};
const responders = { v1: v1.responder, v2: v2.responder };
const checks = new CheckHandler({ ...dependencies, ids, responders });
const corrections = new CorrectionHandler({ ...dependencies, responder: v1.responder });
const gateway = new GatewayCheckHandler({
  ...dependencies,
  knownNamespaces: namespaces,
  finder,
  responseWriter,
  responder: v1.responder,
});

const operations = new OperationForwarder(stats, { v1, v2 }, (number, request) => {
  sendToMain({ kind: 'operation', number, request });
});

/** All of it holds from the next check on: nothing comes in between. */
function activate(publication: Publication): void {
  const { registeredNamespaces, rejectedNamespaces, keys, policies } = publication;
  if (registeredNamespaces !== undefined) namespaces.addRegistered(registeredNamespaces);
  if (rejectedNamespaces !== undefined) namespaces.removeRejected(rejectedNamespaces);
  if (keys !== undefined) keyring.apply(keys);
  overrides.activate(publication);
  if (policies !== undefined) gateway.activate(policies);
}
activate(data.activePublication);

const JSON_TYPE = /^application\/json[ \t]*(;|$)/i;

function requireJson(contentType: string): void {
  if (contentType === 'application/json' || contentType === '') return;
  if (JSON_TYPE.test(contentType)) return;
  const takes = 'must be application/json, or be left out';
  const message = `the header Content-Type ${takes}; got ${formatValue(contentType)}`;
  throw new ApiError('UNSUPPORTED_MEDIA_TYPE', message);
}

const AUTHORIZATION = fixedText('authorization');
const CONTENT_TYPE = fixedText('content-type');

/** A POST that is answered here. */
function postRoute(
  path: string,
  { bodyReader }: ApiServer,
  onBody: BodyHandler<Key>,
  maxBytes = BODY_MAX_BYTES,
): Route {
  const handle: Handler = (res, req, framing) => {
    const key = keyring.verify(req.getHeader(AUTHORIZATION));
    requireJson(req.getHeader(CONTENT_TYPE));
    bodyReader.read(res, framing, maxBytes, key, onBody);
  };
  return { method: 'POST', path, handle };
}

const routes: Route[] = [
  ...gateway.routes(true),
  postRoute('/v1/ratelimits.limit', v1, checks.limitV1),
  postRoute('/v2/ratelimit.limit', v2, checks.limitV2),
  postRoute('/v2/ratelimit.multiLimit', v2, checks.multiLimitV2, MULTI_LIMIT_MAX_BYTES),
  postRoute('/v1/ratelimits.refund', v1, corrections.refund),
  postRoute('/v1/ratelimits.reset', v1, corrections.reset),
  postRoute('/v1/ratelimits.inspect', v1, corrections.inspect),
  ...OPERATION_NAMES.map((name): Route => {
    const { method } = OPERATIONS[name];
    const handle: Handler = (res, req, framing) => {
      const key = keyring.verify(req.getHeader(AUTHORIZATION));
      if (method === 'GET') {
        // Without a `?` there is none, whatever the types say.
        operations.get(res, name, key, req.getQuery() ?? '');
        return;
      }
      requireJson(req.getHeader(CONTENT_TYPE));
      operations.post(res, framing, name, key);
    };
    return { method, path: operationPath(name), handle };
  }),
  ...docsPages().map(({ code, html }): Route => {
    const handle: Handler = (res, req) => {
      v1.responder.sendPage(res, html, req.getCaseSensitiveMethod() === 'HEAD');
    };
    return { method: 'GET', path: DOCS_PATH + code, handle, isPage: true };
  }),
];

const tooManyConnections = new ApiError(
  'SERVICE_UNAVAILABLE',
  'as many connections are open as may be',
);
const acceptorStats = control.allAcceptorStats();
const hasGateway = hasGatewayAddress(data.addresses.gateway);
/** Whoever fills the port of the checks keeps no gateway away, which might then limit nobody. */
const otherConnectionsMax = Math.ceil(
  data.connectionsMax * (hasGateway ? 1 - GATEWAY_CONNECTIONS_SHARE : 1),
);
function onConnection(res: HttpResponse, change: number, kind: AppKind): void {
  stats.addConnections(change);
  if (change < 0) return;
  // Those that others take at this moment may be missing: a few at most pass the bound.
  const open = acceptorStats.reduce((sum, { connections }) => sum + connections, 0);
  if (open <= (kind === 'gateway' ? data.connectionsMax : otherConnectionsMax)) return;
  stats.increment(ACCEPTOR_STAT.shedConnections);
  // Behind TLS nobody can be told before a handshake, which is what costs most.
  if (kind === 'tls') res.close();
  // Told before it asks, in whatever version: then nothing of what it asks is begun.
  else res.cork(() => v1.responder.sendError(res, tooManyConnections, { closeConnection: true }));
}
const gatewayRoutes = gateway.routes(false);
const apps = new Apps(data.tls, hasGateway, (app, kind) => {
  mount(app, kind === 'gateway' ? gatewayRoutes : routes, responders, errorReporter);
  app.filter((res, change) => onConnection(res, change, kind));
});
let isClosing = false;
process.on('exit', (code) => {
  if (!isClosing) {
    sendToMain({
      kind: 'fatal',
      sentence: `acceptor ${data.index} ended by itself, with code ${code}`,
    });
    // Connections are still handed on to the Apps, which so have to be there until the end.
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0);
  }
  apps.close();
});

const listener = new Listener(apps);
function listen(all: readonly AppDescriptors[]): void {
  const failed = listener.listen(data.addresses, all);
  if (failed === undefined) sendToMain({ kind: 'listening' });
  else sendToMain({ kind: 'fatal', sentence: `cannot listen on ${failed}` });
}

function reloadTls(): void {
  try {
    sendToMain({ kind: 'renewed', app: apps.reloadTls(data.tls!) });
  } catch (error) {
    sendToMain({ kind: 'kept', sentence: (error as Error).message });
  }
}

setInterval(() => stats.heartbeat(), HEARTBEAT_MS);

mainPort.on('message', (message: ToAcceptor) => {
  switch (message.kind) {
    case 'listen':
      listen(message.apps);
      break;
    case 'renew':
      reloadTls();
      break;
    case 'handOn':
      listener.distributeTo(message.apps);
      sendToMain({ kind: 'handsOn' });
      break;
    case 'publication':
      activate(message.publication);
      sendToMain({ kind: 'switched', version: message.version });
      break;
    case 'result':
      operations.complete(message.number, message.result);
      break;
    case 'door':
      engine.connectWorker(message.worker, message.port);
      break;
    case 'drain':
      v1.responder.isDraining = true;
      v2.responder.isDraining = true;
      listener.close(
        () => clock.monotonicMs(),
        // What was handed on before this message came is taken over in this turn of the loop.
        () => setImmediate(() => sendToMain({ kind: 'draining' })),
      );
      break;
    case 'close':
      isClosing = true;
      process.exit(0);
      break;
  }
});

sendToMain({ kind: 'ready', apps: apps.descriptors() });
