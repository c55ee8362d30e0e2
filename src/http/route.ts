/**
 * The only caller of `app.*`. Every handler is registered through `guarded`, since a handler that
 * returns without an answer and without `onAborted`, or throws before it, ends the process.
 *
 * A request whose path matches a route letter for letter goes straight to its handler; all others
 * meet the fallback, which knows doubled slashes, wrong methods and unknown paths.
 */

import { ApiError } from '../errors.ts';
import type { Replies } from './reply.ts';
import type { HttpRequest, HttpResponse, TemplatedApp } from './uws.ts';

export type Handler = (res: HttpResponse, req: HttpRequest) => void;

export interface Route {
  method: 'GET' | 'POST';
  path: string;
  handle: Handler;
  /** A page for anybody, which HEAD may ask about as well. */
  isPage?: boolean;
}

/** Longer paths are shown cut in the message of a 404. */
const SHOWN_PATH_MAX = 200;

/** Nothing is left to do when a client goes away: uWebSockets.js calls nothing of ours after it. */
function ignoreAbort(): void {}

export function mount(app: TemplatedApp, routes: readonly Route[], replies: Replies): void {
  const guarded = (handle: Handler): Handler => {
    return (res, req) => {
      res.onAborted(ignoreAbort);
      try {
        handle(res, req);
      } catch (error) {
        replies.error(res, error);
      }
    };
  };
  const byPath = new Map(routes.map((route) => [route.path, route]));
  for (const { method, path, handle } of routes) {
    if (method === 'GET') app.get(path, guarded(handle));
    else app.post(path, guarded(handle));
  }
  app.any(
    '/*',
    guarded((res, req) => {
      const method = req.getCaseSensitiveMethod();
      const path = req.getUrl().replace(/\/{2,}/g, '/');
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
    }),
  );
}
