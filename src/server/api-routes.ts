/**
 * The routes of the API, and what each requires of a request before its handler runs: a valid key,
 * and JSON where it has a body. Failures are ApiErrors (401, 415).
 */

import { OPERATION_NAMES, OPERATIONS, operationPath } from '../api/common/operations.ts';
import type { ByVersion } from '../api/common/versions.ts';
import type { Key, Keyring } from '../auth/keyring.ts';
import { BODY_MAX_BYTES, MULTI_LIMIT_MAX_BYTES } from '../core/constants.ts';
import { formatValue } from '../core/describe.ts';
import { ApiError } from '../core/errors.ts';
import type { BodyHandler } from './body.ts';
import type { CheckHandler } from './checks.ts';
import type { CorrectionHandler } from './corrections.ts';
import { docsRoutes } from './docs.ts';
import type { ApiServer, OperationForwarder } from './operation-forwarder.ts';
import type { Handler, Route } from './route.ts';
import { fixedText, type HttpRequest } from './uws.ts';

const AUTHORIZATION = fixedText('authorization');
const CONTENT_TYPE = fixedText('content-type');
const JSON_TYPE = /^application\/json[ \t]*(;|$)/i;

export function apiRoutes(
  keyring: Keyring,
  { v1, v2 }: ByVersion<ApiServer>,
  checks: CheckHandler,
  corrections: CorrectionHandler,
  operations: OperationForwarder,
): Route[] {
  /** A POST that the acceptor answers itself. */
  const post = (
    path: string,
    { bodyReader }: ApiServer,
    onBody: BodyHandler<Key>,
    maxBytes = BODY_MAX_BYTES,
  ): Route => {
    const handle: Handler = (res, req, framing) => {
      const key = keyring.verify(req.getHeader(AUTHORIZATION));
      requireJson(req);
      bodyReader.read(res, framing, maxBytes, key, onBody);
    };
    return { method: 'POST', path, handle };
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
    post('/v1/ratelimits.limit', v1, checks.limitV1),
    post('/v2/ratelimit.limit', v2, checks.limitV2),
    post('/v2/ratelimit.multiLimit', v2, checks.multiLimitV2, MULTI_LIMIT_MAX_BYTES),
    post('/v1/ratelimits.refund', v1, corrections.refund),
    post('/v1/ratelimits.reset', v1, corrections.reset),
    post('/v1/ratelimits.inspect', v1, corrections.inspect),
    ...operationRoutes,
    ...docsRoutes(v1.responder),
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
