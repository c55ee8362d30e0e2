/**
 * The routes of the API, and what each requires of a request before its handler runs: a valid key,
 * and JSON where it has a body. Failures are ApiErrors (401, 415).
 */

import {
  COUNTER_OPERATIONS,
  type CounterOperationName,
  counterOperationPath,
  OPERATION_NAMES,
  OPERATIONS,
  operationPath,
} from '../api/common/operations.ts';
import type { ByVersion } from '../api/common/versions.ts';
import type { Key, Keyring } from '../auth/keyring.ts';
import { formatValue } from '../core/describe.ts';
import { ApiError } from '../core/errors.ts';
import { validTraceparent } from '../events/decision-event.ts';
import type { BodyHandler } from './body.ts';
import type { CheckBodyHandler, CheckHandler } from './checks.ts';
import type { CorrectionHandler } from './corrections.ts';
import { docsRoutes } from './docs.ts';
import type { ExplanationHandler } from './explanations.ts';
import type { ApiServer, OperationForwarder } from './operation-forwarder.ts';
import type { Handler, Route } from './route.ts';
import { fixedText, type HttpRequest } from './uws.ts';

const AUTHORIZATION = fixedText('authorization');
const CONTENT_TYPE = fixedText('content-type');
const TRACEPARENT = fixedText('traceparent');
const JSON_TYPE = /^application\/json[ \t]*(;|$)/i;

/** The handlers of the operations on counters. */
interface CounterHandlers {
  checks: CheckHandler;
  corrections: CorrectionHandler;
  explanations: ExplanationHandler;
}

export function apiRoutes(
  keyring: Keyring,
  servers: ByVersion<ApiServer>,
  { checks, corrections, explanations }: CounterHandlers,
  operations: OperationForwarder,
): Route[] {
  /** A POST that the acceptor answers itself. */
  const counterRoute = (name: CounterOperationName, onBody: BodyHandler<Key>): Route => {
    const { version, method, maxBytes } = COUNTER_OPERATIONS[name];
    const { bodyReader } = servers[version];
    const handle: Handler = (res, req, framing) => {
      const key = keyring.verify(req.getHeader(AUTHORIZATION));
      requireJson(req);
      bodyReader.read(res, framing, maxBytes, key, onBody);
    };
    return { method, path: counterOperationPath(name), handle };
  };
  /** A check, whose event shows the header `traceparent`. */
  const checkRoute = (name: CounterOperationName, onBody: CheckBodyHandler): Route => {
    const route = counterRoute(name, onBody);
    if (!checks.hasEvents) return route;
    const { version, maxBytes } = COUNTER_OPERATIONS[name];
    const { bodyReader } = servers[version];
    const handle: Handler = (res, req, framing) => {
      const key = keyring.verify(req.getHeader(AUTHORIZATION));
      requireJson(req);
      const traceparent = validTraceparent(req.getHeader(TRACEPARENT));
      bodyReader.read(res, framing, maxBytes, key, (res, key, bytes) => {
        onBody(res, key, bytes, traceparent);
      });
    };
    return { ...route, handle } as Route;
  };
  const operationRoutes = OPERATION_NAMES.map((name): Route => {
    const { method } = OPERATIONS[name];
    const handle: Handler = (res, req, framing) => {
      const key = keyring.verify(req.getHeader(AUTHORIZATION));
      if (method === 'GET') {
        // Undefined for a URL without `?`, against the declared type.
        operations.get(res, name, key, req.getQuery() ?? '');
        return;
      }
      requireJson(req);
      operations.post(res, framing, name, key);
    };
    return { method, path: operationPath(name), handle };
  });
  return [
    checkRoute('ratelimits.limit', checks.limitV1),
    checkRoute('ratelimit.limit', checks.limitV2),
    checkRoute('ratelimit.multiLimit', checks.multiLimitV2),
    counterRoute('ratelimits.refund', corrections.refund),
    counterRoute('ratelimits.reset', corrections.reset),
    counterRoute('ratelimits.inspect', corrections.inspect),
    counterRoute('ratelimits.explain', explanations.explain),
    ...operationRoutes,
    ...docsRoutes(servers.v1.responder),
  ];
}

function requireJson(req: HttpRequest): void {
  const contentType = req.getHeader(CONTENT_TYPE);
  if (contentType === 'application/json' || contentType === '') return;
  if (JSON_TYPE.test(contentType)) return;
  throw new ApiError(
    'UNSUPPORTED_MEDIA_TYPE',
    `the header Content-Type must be application/json or absent; got ${formatValue(contentType)}`,
  );
}
