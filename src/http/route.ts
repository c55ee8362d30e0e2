/**
 * The only caller of `app.*`. Every handler is registered through `guarded`, since a handler that
 * returns without an answer and without `onAborted`, or throws before it, ends the process.
 *
 * A request whose path matches a route letter for letter goes straight to its handler; all others
 * meet the fallback, which knows doubled slashes, wrong methods and unknown paths.
 */

import { type ByVersion, type Version, versionOf } from '../api/faces.ts';
import { ApiError } from '../errors.ts';
import type { Replies } from './reply.ts';
import type { HttpRequest, HttpResponse, TemplatedApp } from './uws.ts';

export type Handler = (res: HttpResponse, req: HttpRequest) => void;

export interface Route {
  /** ANY takes every path that begins as its own does before a `*`. */
  method: 'GET' | 'POST' | 'ANY';
  path: string;
  handle: Handler;
  /** A page for anybody, which HEAD may ask about as well. */
  isPage?: boolean;
}

/** Longer paths are shown cut in the message of a 404. */
const SHOWN_PATH_MAX = 200;

/** Nothing is left to do when a client goes away: uWebSockets.js calls nothing of ours after it. */
function ignoreAbort(): void {}

export function mount(
  app: TemplatedApp,
  routes: readonly Route[],
  repliesOf: ByVersion<Replies>,
): void {
  const exact = routes.filter(({ method }) => method !== 'ANY');
  const byPath = new Map(exact.map((route) => [route.path, route]));
  for (const { method, path, handle } of routes) {
    const handler = guarded(repliesOf[versionOf(path)], handle);
    if (method === 'GET') app.get(path, handler);
    else if (method === 'POST') app.post(path, handler);
    else app.any(path, handler);
  }
  const fallback = (version: Version) => {
    const replies = repliesOf[version];
    return guarded(replies, (res, req) => handleOther(byPath, replies, res, req));
  };
  const fallbacks = { v1: fallback('v1'), v2: fallback('v2') };
  app.any('/*', (res, req) => {
    res.onAborted(ignoreAbort);
    fallbacks[versionOf(pathOf(req))](res, req);
  });
}

function guarded(replies: Replies, handle: Handler): Handler {
  return (res, req) => {
    res.onAborted(ignoreAbort);
    try {
      handle(res, req);
    } catch (error) {
      replies.error(res, error);
    }
  };
}

function pathOf(req: HttpRequest): string {
  return req.getUrl().replace(/\/{2,}/g, '/');
}

function handleOther(
  byPath: ReadonlyMap<string, Route>,
  replies: Replies,
  res: HttpResponse,
  req: HttpRequest,
): void {
  const method = req.getCaseSensitiveMethod();
  const path = pathOf(req);
  const isHead = method === 'HEAD';
  const route = byPath.get(path);
  if (route === undefined) {
    const shown = path.length <= SHOWN_PATH_MAX ? path : `${path.slice(0, SHOWN_PATH_MAX)}...`;
    replies.error(res, new ApiError('NOT_FOUND', `there is no ${method} ${shown}`), { isHead });
  } else if (isHead && route.isPage) {
    replies.page(res, '');
  } else if (method !== route.method) {
    const message = `${path} takes the method ${route.method}, not ${method}`;
    const error = new ApiError('METHOD_NOT_ALLOWED', message);
    const allow = route.isPage ? 'GET, HEAD' : route.method;
    replies.error(res, error, { isHead, allow });
  } else {
    route.handle(res, req);
  }
}
