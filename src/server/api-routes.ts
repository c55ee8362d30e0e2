/**
 * The routes of the API, and what each requires of a request before its handler runs: a valid key,
 * and JSON where it has a body. Failures are ApiErrors (401, 415).
 */

import { type MainRoute, pathOf } from '../api/common/operation.ts';
import type { ByVersion } from '../api/common/versions.ts';
import {
  COUNTER_OPERATIONS,
  type CounterOperationName,
} from '../api/operations/counter-operations.ts';
import type { OperationName } from '../api/operations/main-operations.ts';
import type { Key, Keyring } from '../auth/keyring.ts';
import { formatValue } from '../core/describe.ts';
import { ApiError } from '../core/errors.ts';
import type { DecisionRecorder } from '../decision-thread/decision-recorder.ts';
import { detailsOfHead } from '../events/request-details.ts';
import type { BodyHandler } from './body.ts';
import type { CheckBodyHandler, CheckHandler } from './checks.ts';
import type { CorrectionHandler } from './corrections.ts';
import type { ExplanationHandler } from './explanations.ts';
import type { HoldHandler } from './holds.ts';
import type { ApiServer, OperationForwarder } from './operation-forwarder.ts';
import type { Handler, Route } from './route.ts';
import { fixedText, type HttpRequest } from './uws.ts';

const AUTHORIZATION = fixedText('authorization');
const CONTENT_TYPE = fixedText('content-type');
const TRACEPARENT = fixedText('traceparent');
const JSON_TYPE = /^application\/json[ \t]*(;|$)/i;

/** The operations that an acceptor answers itself. Only checks and leases become events. */
export type CounterHandlers = Readonly<Record<CounterOperationName, CheckBodyHandler>>;

export function counterHandlers(
  checks: CheckHandler,
  corrections: CorrectionHandler,
  explanations: ExplanationHandler,
  holds: HoldHandler,
): CounterHandlers {
  return {
    'ratelimits.limit': checks.limitV1,
    'ratelimit.limit': checks.limitV2,
    'ratelimit.multiLimit': checks.multiLimitV2,
    'ratelimits.refund': corrections.refund,
    'ratelimits.reset': corrections.reset,
    'ratelimits.inspect': corrections.inspect,
    'ratelimits.explain': explanations.explain,
    'ratelimits.findIdentifier': explanations.findIdentifier,
    'ratelimits.endHold': corrections.endHold,
    'ratelimits.reserve': holds.reserve,
    'ratelimits.commit': holds.commit,
    'ratelimits.cancel': holds.cancel,
    'ratelimits.acquire': holds.acquire,
    'ratelimits.renew': holds.renew,
    'ratelimits.release': holds.release,
  };
}

export function apiRoutes(
  keyring: Keyring,
  servers: ByVersion<ApiServer>,
  counters: CounterHandlers,
  mainRoutes: readonly MainRoute<OperationName>[],
  operations: OperationForwarder,
  recorder: DecisionRecorder,
): Route[] {
  const counterRoutes = Object.values(COUNTER_OPERATIONS).map((operation): Route => {
    const { name, version, method, maxBytes } = operation;
    const { bodyReader } = servers[version];
    const onBody = counters[name];
    const handle: Handler = (res, req, framing) => {
      const key = keyring.verify(req.getHeader(AUTHORIZATION));
      requireJson(req);
      const handler = recorder.samples() ? sampledHandler(onBody, req) : onBody;
      bodyReader.read(res, framing, maxBytes, key, handler);
    };
    return { method, path: pathOf(operation), handle };
  });
  const forwardedRoutes = mainRoutes.map((route): Route => {
    const { method } = route;
    const handle: Handler = (res, req, framing) => {
      const key = keyring.verify(req.getHeader(AUTHORIZATION));
      if (method === 'GET') {
        // Undefined for a URL without `?`, against the declared type.
        operations.get(res, route, key, req.getQuery() ?? '');
        return;
      }
      requireJson(req);
      operations.post(res, framing, route, key);
    };
    return { method, path: pathOf(route), handle };
  });
  return [...counterRoutes, ...forwardedRoutes];
}

/** The handler of one request of the sample: it keeps what an event says of the head. */
function sampledHandler(onBody: CheckBodyHandler, req: HttpRequest): BodyHandler<Key> {
  const details = detailsOfHead(req.getHeader(TRACEPARENT));
  return (res, key, bytes) => onBody(res, key, bytes, details);
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
