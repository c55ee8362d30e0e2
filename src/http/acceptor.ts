/**
 * An acceptor: the thread that takes connections and answers checks, decided here or by a shard
 * worker. Started by the main thread, which it tells when it listens; it shares its port with the
 * other acceptors and the counters with all of them.
 *
 * Whatever it does not catch is fatal for the process: a limiter with half of its threads is worse
 * than a restarted one. The main thread hears of it and ends the process. A thread must not end
 * with an open App, which would take the process down with a native dump.
 */

import { parentPort, workerData } from 'node:worker_threads';
import { answerText, LimitReader } from '../api/limit.ts';
import { type Key, Keyring } from '../auth/keyring.ts';
import { Control } from '../control.ts';
import { Counters } from '../counters/counters.ts';
import { ByWorker } from '../decide/by-worker.ts';
import type { Decider } from '../decide/decider.ts';
import { InPlace } from '../decide/in-place.ts';
import { ApiError } from '../errors.ts';
import { BODY_MAX_BYTES, HEARTBEAT_MS } from '../limits.ts';
import { KnownNamespaces } from '../namespaces/known.ts';
import { Handoff } from '../shards/handoff.ts';
import { attachLink } from '../shards/ring.ts';
import { Clock } from '../time.ts';
import { BodyReader, type OnBody } from './body.ts';
import { DOCS_PATH, docsPages } from './docs.ts';
import type { AcceptorData, ToAcceptor, ToMain } from './messages.ts';
import { Replies } from './reply.ts';
import { mount, type Route } from './route.ts';
import { App, fixedText, type us_listen_socket, us_listen_socket_close } from './uws.ts';

const data: AcceptorData = workerData;
const main = parentPort!;
const tell = (message: ToMain) => main.postMessage(message);

process.on('uncaughtException', (error) => {
  tell({ kind: 'fatal', sentence: `acceptor ${data.index} failed: ${error.stack}` });
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
namespaces.registered(data.namespaces);
const keyring = new Keyring(data.keys, clock);
const reader = new LimitReader(namespaces);
const replies = new Replies(lane, data.url + DOCS_PATH, (failure) => {
  tell({ kind: 'failure', failure });
});

const handoffs = data.links.map((link, worker) => {
  return new Handoff(attachLink(link, data.index, worker), control.workerLane(worker));
});
const byWorker =
  data.decide === 'worker'
    ? new ByWorker(counters, handoffs, clock, lane, {
        decision: (res, limit, decision) => {
          res.cork(() => replies.json(res, answerText(limit, decision)));
        },
        error: (res, error) => {
          res.cork(() => replies.error(res, error));
        },
      })
    : undefined;
const decider: Decider = byWorker ?? new InPlace(counters, handoffs, clock, lane);

const bodies = new BodyReader(BODY_MAX_BYTES, lane, (res, error) => replies.error(res, error));
const answerLimit: OnBody<Key> = (res, key, bytes) => {
  const startedMs = clock.monotonicMs();
  const check = reader.read(key, bytes);
  const decision = decider.decide(check, startedMs, res);
  if (decision === undefined) return;
  replies.json(res, answerText(check.limit, decision));
  lane.answered(clock.monotonicMs() - startedMs);
};

const JSON_TYPE = /^application\/json[ \t]*(;|$)/i;

function requireJson(contentType: string): void {
  if (contentType === 'application/json' || contentType === '') return;
  if (JSON_TYPE.test(contentType)) return;
  throw new ApiError(
    'UNSUPPORTED_MEDIA_TYPE',
    'the header Content-Type must be application/json, or be left out',
  );
}

const AUTHORIZATION = fixedText('authorization');
const CONTENT_TYPE = fixedText('content-type');

const routes: Route[] = [
  {
    method: 'POST',
    path: '/v1/ratelimits.limit',
    handle: (res, req) => {
      const key = keyring.verify(req.getHeader(AUTHORIZATION));
      requireJson(req.getHeader(CONTENT_TYPE));
      bodies.read(res, key, answerLimit);
    },
  },
  ...docsPages().map(({ code, html }): Route => {
    return { method: 'GET', path: DOCS_PATH + code, handle: (res) => replies.page(res, html) };
  }),
];

const app = App();
mount(app, routes, replies);
process.on('exit', () => app.close());
app.filter((_res, change) => lane.connection(change));

let socket: us_listen_socket | false = false;
app.listen(data.host, data.port, (listening) => {
  socket = listening;
  if (listening) tell({ kind: 'listening' });
  else tell({ kind: 'fatal', sentence: `cannot listen on ${data.host}:${data.port}` });
});

setInterval(() => lane.beat(), HEARTBEAT_MS);

main.on('message', (message: ToAcceptor) => {
  switch (message.kind) {
    case 'namespaces':
      namespaces.registered(message.registered);
      namespaces.rejected(message.rejected);
      break;
    case 'door':
      byWorker?.door(message.worker, message.port);
      break;
    case 'drain':
      replies.draining = true;
      if (socket) us_listen_socket_close(socket);
      socket = false;
      tell({ kind: 'draining' });
      break;
    case 'close':
      process.exit(0);
      break;
  }
});
