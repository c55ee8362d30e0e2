/**
 * Registers the routes of an App; no other file calls `app.get` and its like. Every handler runs in
 * `withErrorHandling`: a handler that throws, or returns without a response and without
 * `onAborted`, would end the process.
 *
 * A path that matches a route exactly goes straight to its handler. The fallback handles all
 * others: doubled slashes, wrong methods (405) and unknown paths (404).
 */

import { type ByVersion, type Version, versionOf } from '../api/common/versions.ts';
import { ApiError } from '../core/errors.ts';
import type { ErrorReporter } from './error-reporter.ts';
import { type Framing, readFraming } from './framing.ts';
import type { Responder } from './responder.ts';
import type { Turns } from './turns.ts';
import type { HttpRequest, HttpResponse, TemplatedApp } from './uws.ts';

export type Handler = (res: HttpResponse, req: HttpRequest, framing: Framing) => void;
/** The handler of a route that reads the framing itself, with all other headers. */
type UnframedHandler = (res: HttpResponse, req: HttpRequest) => void;

interface ExactRoute {
  method: 'GET' | 'POST';
  path: string;
  handle: Handler;
  /** A public page, which also accepts HEAD. */
  isPage?: boolean;
}

/** Accepts every method, and every path with the prefix before its `*`. */
interface PrefixRoute {
  method: 'ANY';
  path: string;
  handle: UnframedHandler;
}

export type Route = ExactRoute | PrefixRoute;

/** A 404 shows longer paths cut. */
const SHOWN_PATH_MAX = 200;

/** After a disconnect there is nothing to clean up: uWebSockets.js makes no more callbacks. */
function ignoreAbort(): void {}

/** @param errorReporter only at log level debug */
export function mount(
  app: TemplatedApp,
  routes: readonly Route[],
  responders: ByVersion<Responder>,
  turns: Turns,
  errorReporter?: ErrorReporter,
): void {
  const byPath = new Map<string, ExactRoute>();
  for (const route of routes) {
    const { path } = route;
    const responder = responders[versionOf(path)];
    if (route.method === 'ANY') {
      app.any(path, withErrorHandling(responder, route.handle, turns, errorReporter));
      continue;
    }
    byPath.set(path, route);
    const handler = withErrorHandling(
      responder,
      withFraming(responder, route.handle),
      turns,
      errorReporter,
    );
    if (route.method === 'GET') app.get(path, handler);
    else app.post(path, handler);
  }
  const fallback = (version: Version) => {
    const responder = responders[version];
    const handle: Handler = (res, req, framing) => {
      handleUnmatched(byPath, responder, res, req, framing);
    };
    return withErrorHandling(responder, withFraming(responder, handle), turns, errorReporter);
  };
  const fallbacks = { v1: fallback('v1'), v2: fallback('v2') };
  app.any('/*', (res, req) => {
    res.onAborted(ignoreAbort);
    fallbacks[versionOf(normalizedPath(req))](res, req);
  });
}

/** Reads the framing before the handler runs: a request with ambiguous framing may be two. */
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
  turns: Turns,
  errorReporter: ErrorReporter | undefined,
): UnframedHandler {
  const tryHandle: UnframedHandler = (res, req) => {
    try {
      handle(res, req);
    } catch (error) {
      responder.sendError(res, error, { isHead: req.getCaseSensitiveMethod() === 'HEAD' });
    }
  };
  // A function of its own: its closure costs the usual request nothing.
  const tryHandleCorked: UnframedHandler = (res, req) => {
    res.cork(() => tryHandle(res, req));
  };
  const guarded: UnframedHandler = (res, req) => {
    res.onAborted(ignoreAbort);
    turns.begin();
    if (turns.isPipelined) tryHandleCorked(res, req);
    else tryHandle(res, req);
  };
  if (errorReporter === undefined) return guarded;
  return (res, req) => {
    errorReporter.rememberPath(res, req);
    guarded(res, req);
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
  // The response to HEAD has the length of that to GET, so both get the same message.
  const shownMethod = isHead && route?.method !== 'GET' ? 'GET' : method;
  if (route === undefined) {
    const shown = path.length <= SHOWN_PATH_MAX ? path : `${path.slice(0, SHOWN_PATH_MAX)}...`;
    const error = new ApiError('NOT_FOUND', `there is no ${shownMethod} ${shown}`);
    responder.sendError(res, error, { isHead });
  } else if (isHead && route.isPage) {
    route.handle(res, req, framing);
  } else if (method !== route.method) {
    const message = `${path} accepts the method ${route.method}; got ${shownMethod}`;
    const error = new ApiError('METHOD_NOT_ALLOWED', message);
    const allow = route.isPage ? 'GET, HEAD' : route.method;
    responder.sendError(res, error, { isHead, allow });
  } else {
    route.handle(res, req, framing);
  }
}
