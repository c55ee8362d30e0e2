/**
 * The only caller of `app.*`. Every handler is registered through `guarded`, since a handler that
 * returns without an answer and without `onAborted`, or throws before it, ends the process.
 *
 * A request whose path matches a route letter for letter goes straight to its handler; all others
 * meet the fallback, which knows doubled slashes, wrong methods and unknown paths.
 */

import { type ByVersion, type Version, versionOf } from '../api/faces.ts';
import { ApiError } from '../errors.ts';
import type { ErrorReports } from './error-reports.ts';
import { type Framing, framingOf } from './framing.ts';
import type { Replies } from './reply.ts';
import type { HttpRequest, HttpResponse, TemplatedApp } from './uws.ts';

export type Handler = (res: HttpResponse, req: HttpRequest, framing: Framing) => void;
/** Of a route that looks at the framing itself, with all other headers. */
export type UnframedHandler = (res: HttpResponse, req: HttpRequest) => void;

export interface ExactRoute {
  method: 'GET' | 'POST';
  path: string;
  handle: Handler;
  /** A page for anybody, which HEAD may ask about as well. */
  isPage?: boolean;
}

/** Takes every method, and every path that begins as its own does before a `*`. */
export interface AnyRoute {
  method: 'ANY';
  path: string;
  handle: UnframedHandler;
}

export type Route = ExactRoute | AnyRoute;

/** Longer paths are shown cut in the message of a 404. */
const SHOWN_PATH_MAX = 200;

/** Nothing is left to do when a client goes away: uWebSockets.js calls nothing of ours after it. */
function ignoreAbort(): void {}

/** @param reports where the log has level debug */
export function mount(
  app: TemplatedApp,
  routes: readonly Route[],
  repliesOf: ByVersion<Replies>,
  reports?: ErrorReports,
): void {
  const byPath = new Map<string, ExactRoute>();
  for (const route of routes) {
    const { path } = route;
    const replies = repliesOf[versionOf(path)];
    if (route.method === 'ANY') {
      app.any(path, guarded(replies, route.handle, reports));
      continue;
    }
    byPath.set(path, route);
    const handler = guarded(replies, framed(replies, route.handle), reports);
    if (route.method === 'GET') app.get(path, handler);
    else app.post(path, handler);
  }
  const fallback = (version: Version) => {
    const replies = repliesOf[version];
    const handle: Handler = (res, req, framing) => {
      handleOther(byPath, replies, res, req, framing);
    };
    return guarded(replies, framed(replies, handle), reports);
  };
  const fallbacks = { v1: fallback('v1'), v2: fallback('v2') };
  app.any('/*', (res, req) => {
    res.onAborted(ignoreAbort);
    fallbacks[versionOf(pathOf(req))](res, req);
  });
}

/** Looks at the framing first: nothing is decided about a request that may be two. */
function framed(replies: Replies, handle: Handler): UnframedHandler {
  return (res, req) => {
    const framing = framingOf(req);
    if (framing.closes) replies.closeAfter(res);
    if (framing.fault !== undefined) throw framing.fault;
    handle(res, req, framing);
  };
}

function guarded(
  replies: Replies,
  handle: UnframedHandler,
  reports: ErrorReports | undefined,
): UnframedHandler {
  const guard: UnframedHandler = (res, req) => {
    res.onAborted(ignoreAbort);
    try {
      handle(res, req);
    } catch (error) {
      replies.error(res, error, { isHead: req.getCaseSensitiveMethod() === 'HEAD' });
    }
  };
  if (reports === undefined) return guard;
  return (res, req) => {
    reports.mark(res, req);
    guard(res, req);
  };
}

function pathOf(req: HttpRequest): string {
  return req.getUrl().replace(/\/{2,}/g, '/');
}

function handleOther(
  byPath: ReadonlyMap<string, ExactRoute>,
  replies: Replies,
  res: HttpResponse,
  req: HttpRequest,
  framing: Framing,
): void {
  const method = req.getCaseSensitiveMethod();
  const path = pathOf(req);
  const isHead = method === 'HEAD';
  const route = byPath.get(path);
  // The answer to HEAD has the length of GET's, so both are told the same.
  const shownMethod = isHead && route?.method !== 'GET' ? 'GET' : method;
  if (route === undefined) {
    const shown = path.length <= SHOWN_PATH_MAX ? path : `${path.slice(0, SHOWN_PATH_MAX)}...`;
    const error = new ApiError('NOT_FOUND', `there is no ${shownMethod} ${shown}`);
    replies.error(res, error, { isHead });
  } else if (isHead && route.isPage) {
    route.handle(res, req, framing);
  } else if (method !== route.method) {
    const message = `${path} takes the method ${route.method}, not ${shownMethod}`;
    const error = new ApiError('METHOD_NOT_ALLOWED', message);
    const allow = route.isPage ? 'GET, HEAD' : route.method;
    replies.error(res, error, { isHead, allow });
  } else {
    route.handle(res, req, framing);
  }
}
