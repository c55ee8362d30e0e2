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
import { FACES, type Face } from '../api/faces.ts';
import { NamespaceFinder } from '../api/finder.ts';
import { OPERATION_NAMES, OPERATIONS, pathOf } from '../api/operations.ts';
import { RequestIds } from '../api/request-ids.ts';
import { type Key, Keyring } from '../auth/keyring.ts';
import { Control } from '../control.ts';
import { Counters } from '../counters/counters.ts';
import { ByWorker } from '../decide/by-worker.ts';
import type { Decider } from '../decide/decider.ts';
import { InPlace } from '../decide/in-place.ts';
import { describe } from '../describe.ts';
import { ApiError, StartError } from '../errors.ts';
import { COUNT } from '../lanes.ts';
import {
  BODY_MAX_BYTES,
  GATEWAY_CONNECTIONS_SHARE,
  HEARTBEAT_MS,
  MULTI_LIMIT_MAX_BYTES,
} from '../limits.ts';
import { KnownNamespaces } from '../namespaces/known.ts';
import { OverridesInForce } from '../overrides/in-force.ts';
import { RingsAhead } from '../shards/ahead.ts';
import { Handoff } from '../shards/handoff.ts';
import { attachLink } from '../shards/ring.ts';
import { Clock } from '../time.ts';
import { type AppDescriptors, type AppKind, Apps } from './apps.ts';
import { BodyReader, BodyRoom, type OnBody } from './body.ts';
import { Checks } from './checks.ts';
import { Corrections } from './corrections.ts';
import { DOCS_PATH, docsPages } from './docs.ts';
import { ErrorReports } from './error-reports.ts';
import { GatewayChecks } from './gateway.ts';
import { hasPlace, Listener } from './listener.ts';
import type { AcceptorData, Publication, ToAcceptor, ToMain } from './messages.ts';
import { Operations, type Server } from './operations.ts';
import { Outlet } from './outlet.ts';
import { type Failure, Replies } from './reply.ts';
import { type Handler, mount, type Route } from './route.ts';
import { fixedText, type HttpResponse } from './uws.ts';

const data: AcceptorData = workerData;
const main = parentPort!;
const tell = (message: ToMain) => main.postMessage(message);

process.on('uncaughtException', (error) => {
  const why = `acceptor ${data.index} failed: ${error.stack}`;
  tell({ kind: 'fatal', sentence: error instanceof StartError ? error.message : why });
});

const control = new Control(data.control);
const lane = control.acceptorLane(data.index);
const clock = new Clock(control);
const waiting = () => lane.beat();
const owner = data.index + 1;
const counters = new Counters(data.tables, data.hashKey, owner, data.onFull, waiting);
const namespaces = new KnownNamespaces(
  (name) => counters.namespaceState(name),
  (row) => lane.row(row),
  (name) => tell({ kind: 'namespace', name }),
);
const keyring = new Keyring(clock);
const overrides = new OverridesInForce();
const finder = new NamespaceFinder(namespaces);

const ids = new RequestIds();
const outlet = new Outlet(lane);
const room = new BodyRoom();
const debug = (text: string, fields: object) => tell({ kind: 'debug', record: { text, fields } });
const reports = data.reportsErrors
  ? new ErrorReports(
      (report) => debug('answered with an error', report),
      (leftOut) => debug('error answers were not logged: too many in a second', { leftOut }),
    )
  : undefined;
const serverOf = (face: Face): Server => {
  const fail = (failure: Failure) => tell({ kind: 'failure', failure });
  const replies = new Replies(face, ids, lane, outlet, data.url + DOCS_PATH, fail, reports);
  const bodies = new BodyReader(lane, room, replies);
  return { replies, bodies };
};
const v1 = serverOf(FACES.v1);
const v2 = serverOf(FACES.v2);

const links = data.links.map((row, acceptor) => {
  return row.map((link, worker) => attachLink(link, acceptor, worker));
});
const handoffs = links[data.index].map((link, worker) => {
  return new Handoff(link, control.workerLane(worker));
});
const byWorker =
  data.decide === 'worker' ? new ByWorker(counters, handoffs, clock, lane) : undefined;
const decider: Decider = byWorker ?? new InPlace(counters, handoffs, clock, lane);

const parts = { namespaces: finder, counters, overrides, clock, lane, keyring };
const replies = { v1: v1.replies, v2: v2.replies };
const checks = new Checks({ ...parts, decider, ids, replies });
const rings = new RingsAhead(links, () => clock.monotonicMs());
const workers = handoffs.length;
const corrections = new Corrections({ ...parts, rings, workers, replies: v1.replies });

const gateway = new GatewayChecks({
  ...parts,
  known: namespaces,
  finder,
  decider,
  outlet,
  replies: v1.replies,
});

const operations = new Operations(lane, { v1, v2 }, (number, request) => {
  tell({ kind: 'operation', number, request });
});

/** All of it holds from the next check on: nothing comes in between. */
function switchTo(publication: Publication): void {
  const { registered, rejected, keys, policies } = publication;
  if (registered !== undefined) namespaces.registered(registered);
  if (rejected !== undefined) namespaces.rejected(rejected);
  if (keys !== undefined) keyring.change(keys);
  overrides.switchTo(publication);
  if (policies !== undefined) gateway.switchTo(policies);
}
switchTo(data.inForce);

const JSON_TYPE = /^application\/json[ \t]*(;|$)/i;

function requireJson(contentType: string): void {
  if (contentType === 'application/json' || contentType === '') return;
  if (JSON_TYPE.test(contentType)) return;
  const takes = 'must be application/json, or be left out';
  const message = `the header Content-Type ${takes}; got ${describe(contentType)}`;
  throw new ApiError('UNSUPPORTED_MEDIA_TYPE', message);
}

const AUTHORIZATION = fixedText('authorization');
const CONTENT_TYPE = fixedText('content-type');

/** A POST that is answered here. */
function post(
  path: string,
  { bodies }: Server,
  onBody: OnBody<Key>,
  maxBytes = BODY_MAX_BYTES,
): Route {
  const handle: Handler = (res, req, framing) => {
    const key = keyring.verify(req.getHeader(AUTHORIZATION));
    requireJson(req.getHeader(CONTENT_TYPE));
    bodies.read(res, framing, maxBytes, key, onBody);
  };
  return { method: 'POST', path, handle };
}

const routes: Route[] = [
  ...gateway.routes(true),
  post('/v1/ratelimits.limit', v1, checks.v1),
  post('/v2/ratelimit.limit', v2, checks.v2),
  post('/v2/ratelimit.multiLimit', v2, checks.many, MULTI_LIMIT_MAX_BYTES),
  post('/v1/ratelimits.refund', v1, corrections.refund),
  post('/v1/ratelimits.reset', v1, corrections.reset),
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
    return { method, path: pathOf(name), handle };
  }),
  ...docsPages().map(({ code, html }): Route => {
    const handle: Handler = (res, req) => {
      v1.replies.page(res, html, req.getCaseSensitiveMethod() === 'HEAD');
    };
    return { method: 'GET', path: DOCS_PATH + code, handle, isPage: true };
  }),
];

const tooMany = new ApiError('SERVICE_UNAVAILABLE', 'as many connections are open as may be');
const lanes = control.acceptorLanes();
const hasGateway = hasPlace(data.places.gateway);
/** Whoever fills the port of the checks keeps no gateway away, which might then limit nobody. */
const mostOthers = Math.ceil(data.connections * (hasGateway ? 1 - GATEWAY_CONNECTIONS_SHARE : 1));
function onConnection(res: HttpResponse, change: number, kind: AppKind): void {
  lane.connection(change);
  if (change < 0) return;
  // Those that others take at this moment may be missing: a few at most pass the bound.
  const open = lanes.reduce((sum, { connections }) => sum + connections, 0);
  if (open <= (kind === 'gateway' ? data.connections : mostOthers)) return;
  lane.count(COUNT.shedConnections);
  // Behind TLS nobody can be told before a handshake, which is what costs most.
  if (kind === 'tls') res.close();
  // Told before it asks, in whatever version: then nothing of what it asks is begun.
  else res.cork(() => v1.replies.error(res, tooMany, { close: true }));
}
const forGateways = gateway.routes(false);
const apps = new Apps(data.tls, hasGateway, (app, kind) => {
  mount(app, kind === 'gateway' ? forGateways : routes, replies, reports);
  app.filter((res, change) => onConnection(res, change, kind));
});
let toldToEnd = false;
process.on('exit', (code) => {
  if (!toldToEnd) {
    tell({ kind: 'fatal', sentence: `acceptor ${data.index} ended by itself, with code ${code}` });
    // Connections are still handed on to the Apps, which so have to be there until the end.
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0);
  }
  apps.close();
});

const listener = new Listener(apps);
function listen(all: readonly AppDescriptors[]): void {
  const failed = listener.open(data.places, all);
  if (failed === undefined) tell({ kind: 'listening' });
  else tell({ kind: 'fatal', sentence: `cannot listen on ${failed}` });
}

function renew(): void {
  try {
    tell({ kind: 'renewed', app: apps.renew(data.tls!) });
  } catch (error) {
    tell({ kind: 'kept', sentence: (error as Error).message });
  }
}

setInterval(() => lane.beat(), HEARTBEAT_MS);

main.on('message', (message: ToAcceptor) => {
  switch (message.kind) {
    case 'listen':
      listen(message.apps);
      break;
    case 'renew':
      renew();
      break;
    case 'handOn':
      listener.handOnTo(message.apps);
      tell({ kind: 'handsOn' });
      break;
    case 'publication':
      switchTo(message.publication);
      tell({ kind: 'switched', version: message.version });
      break;
    case 'result':
      operations.answer(message.number, message.result);
      break;
    case 'door':
      byWorker?.door(message.worker, message.port);
      break;
    case 'drain':
      v1.replies.draining = true;
      v2.replies.draining = true;
      listener.close(
        () => clock.monotonicMs(),
        // What was handed on before this message came is taken over in this turn of the loop.
        () => setImmediate(() => tell({ kind: 'draining' })),
      );
      break;
    case 'close':
      toldToEnd = true;
      process.exit(0);
      break;
  }
});

tell({ kind: 'ready', apps: apps.descriptors() });
