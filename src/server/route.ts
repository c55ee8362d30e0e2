/**
 * The only caller of `app.*`. Every handler is registered through `guarded`, since a handler that
 * returns without an answer and without `onAborted`, or throws before it, ends the process.
 *
 * A request whose path matches a route letter for letter goes straight to its handler; all others
 * meet the fallback, which knows doubled slashes, wrong methods and unknown paths.
 */

import { type ByVersion, type Version, versionOf } from '../api/common/versions.ts';
import { ApiError } from '../core/errors.ts';
import type { ErrorReporter } from './error-reporter.ts';
import { type Framing, readFraming } from './framing.ts';
import type { Responder } from './responder.ts';
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
export interface PrefixRoute {
  method: 'ANY';
  path: string;
  handle: UnframedHandler;
}

export type Route = ExactRoute | PrefixRoute;

/** Longer paths are shown cut in the message of a 404. */
const SHOWN_PATH_MAX = 200;

/** Nothing is left to do when a client goes away: uWebSockets.js calls nothing of ours after it. */
function ignoreAbort(): void {}

/** @param errorReporter where the log has level debug */
export function mount(
  app: TemplatedApp,
  routes: readonly Route[],
  responders: ByVersion<Responder>,
  errorReporter?: ErrorReporter,
): void {
  const byPath = new Map<string, ExactRoute>();
  for (const route of routes) {
    const { path } = route;
    const replies = responders[versionOf(path)];
    if (route.method === 'ANY') {
      app.any(path, withErrorHandling(replies, route.handle, errorReporter));
      continue;
    }
    byPath.set(path, route);
    const handler = withErrorHandling(replies, withFraming(replies, route.handle), errorReporter);
    if (route.method === 'GET') app.get(path, handler);
    else app.post(path, handler);
  }
  const fallback = (version: Version) => {
    const replies = responders[version];
    const handle: Handler = (res, req, framing) => {
      handleUnmatched(byPath, replies, res, req, framing);
    };
    return withErrorHandling(replies, withFraming(replies, handle), errorReporter);
  };
  const fallbacks = { v1: fallback('v1'), v2: fallback('v2') };
  app.any('/*', (res, req) => {
    res.onAborted(ignoreAbort);
    fallbacks[versionOf(normalizedPath(req))](res, req);
  });
}

/** Looks at the framing first: nothing is decided about a request that may be two. */
function withFraming(responder: Responder, handle: Handler): UnframedHandler {
  return (res, req) => {
    const framing = readFraming(req);
    if (framing.closesConnection) responder.closeAfterResponse(res);
    if (framing.error !== undefined) throw framing.error;
    handle(res, req, framing);
  };
}

function withErrorHandling(
  responder: Responder,
  handle: UnframedHandler,
  errorReporter: ErrorReporter | undefined,
): UnframedHandler {
  const guard: UnframedHandler = (res, req) => {
    res.onAborted(ignoreAbort);
    try {
      handle(res, req);
    } catch (error) {
      responder.sendError(res, error, { isHead: req.getCaseSensitiveMethod() === 'HEAD' });
    }
  };
  if (errorReporter === undefined) return guard;
  return (res, req) => {
    errorReporter.rememberPath(res, req);
    guard(res, req);
  };
}

function normalizedPath(req: HttpRequest): string {
  return req.getUrl().replace(/\/{2,}/g, '/');
}

function handleUnmatched(
  byPath: ReadonlyMap<string, ExactRoute>,
  responder: Responder,
  res: HttpResponse,
  req: HttpRequest,
  framing: Framing,
): void {
  const method = req.getCaseSensitiveMethod();
  const path = normalizedPath(req);
  const isHead = method === 'HEAD';
  const route = byPath.get(path);
  // The answer to HEAD has the length of GET's, so both are told the same.
  const shownMethod = isHead && route?.method !== 'GET' ? 'GET' : method;
  if (route === undefined) {
    const shown = path.length <= SHOWN_PATH_MAX ? path : `${path.slice(0, SHOWN_PATH_MAX)}...`;
    const error = new ApiError('NOT_FOUND', `there is no ${shownMethod} ${shown}`);
    responder.sendError(res, error, { isHead });
  } else if (isHead && route.isPage) {
    route.handle(res, req, framing);
  } else if (method !== route.method) {
    const message = `${path} takes the method ${route.method}, not ${shownMethod}`;
    const error = new ApiError('METHOD_NOT_ALLOWED', message);
    const allow = route.isPage ? 'GET, HEAD' : route.method;
    responder.sendError(res, error, { isHead, allow });
  } else {
    route.handle(res, req, framing);
  }
}
