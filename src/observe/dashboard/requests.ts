/**
 * Requests to the dashboard: their cookies, their bodies, and what is required of them. Failures
 * are ApiErrors.
 */

import type { IncomingMessage, ServerResponse } from 'node:http';
import { DASHBOARD_BODY_BYTES_MAX } from '../../core/constants.ts';
import { formatValue } from '../../core/describe.ts';
import { ApiError } from '../../core/errors.ts';
import { isTokenOf, type Session } from './sessions.ts';

const CSRF_HEADER = 'x-weir-csrf';

/** @returns the value of a cookie; undefined without it */
export function readCookie(req: IncomingMessage, name: string): string | undefined {
  for (const pair of (req.headers.cookie ?? '').split(';')) {
    const [key, value] = pair.trim().split('=', 2);
    if (key === name) return value;
  }
  return undefined;
}

/** @returns the text after the `?` */
export function queryOf({ url = '' }: IncomingMessage): string {
  const mark = url.indexOf('?');
  return mark < 0 ? '' : url.slice(mark + 1);
}

/** Reads bodies, within a bound of the bytes of all incomplete ones. */
export class BodyBuffers {
  #bytes = 0;

  /** @throws ApiError (400, 413, 503) */
  async read(req: IncomingMessage, maxBytes: number): Promise<Uint8Array> {
    // Known before it is read: an error in the loop below closes the connection.
    if (Number(req.headers['content-length']) > maxBytes) throw tooLarge(maxBytes);
    const chunks: Buffer[] = [];
    let size = 0;
    try {
      for await (const chunk of req as AsyncIterable<Buffer>) {
        size += chunk.length;
        this.#bytes += chunk.length;
        if (size > maxBytes) throw tooLarge(maxBytes);
        if (this.#bytes > DASHBOARD_BODY_BYTES_MAX) {
          const message = 'too many request bodies are incomplete; nothing was done';
          throw new ApiError('SERVICE_UNAVAILABLE', message);
        }
        chunks.push(chunk);
      }
    } catch (error) {
      if (error instanceof ApiError) throw error;
      throw new ApiError('BAD_REQUEST', 'the body is incomplete');
    } finally {
      this.#bytes -= size;
    }
    // Not a part of a larger buffer, all of which would be copied to another thread.
    const body = new Uint8Array(size);
    let offset = 0;
    for (const chunk of chunks) {
      body.set(chunk, offset);
      offset += chunk.length;
    }
    return body;
  }
}

function tooLarge(maxBytes: number): ApiError {
  return new ApiError('PAYLOAD_TOO_LARGE', `the body must be at most ${maxBytes} bytes`);
}

/**
 * Cookies do not depend on the port, so the name does: two weirs whose ports are forwarded to one
 * machine do not end the sessions of each other.
 */
export function cookieName({ headers: { host = '' } }: IncomingMessage): string {
  const [, port = ''] = /:(\d+)$/.exec(host) ?? [];
  return port === '' ? 'weir_session' : `weir_session_${port}`;
}

/** `Secure` where the page came through a proxy with TLS. */
export function cookieFlags({ headers: { origin = '' } }: IncomingMessage): string {
  const flags = 'HttpOnly; SameSite=Strict; Path=/dashboard';
  return origin.startsWith('https://') ? `${flags}; Secure` : flags;
}

/** The admin port accepts its own origin only, or none. @throws ApiError (403) */
export function requireOrigin({ headers }: IncomingMessage): void {
  if (headers.origin !== undefined) return;
  throw new ApiError('FORBIDDEN', 'the header Origin must be that of the admin port; got nothing');
}

/** @throws ApiError (403) */
export function requireToken(req: IncomingMessage, session: Session): void {
  requireOrigin(req);
  const received = req.headers[CSRF_HEADER];
  if (isTokenOf(session, typeof received === 'string' ? received : undefined)) return;
  const fault = received === undefined ? 'it is missing' : 'it has another value';
  throw new ApiError(
    'FORBIDDEN',
    `the header X-Weir-Csrf must have the csrfToken of the session: ${fault}`,
  );
}

/** @throws ApiError (415) */
export function requireJson({ headers }: IncomingMessage): void {
  const type = headers['content-type'];
  if (type !== undefined && /^application\/json[ \t]*(;|$)/i.test(type)) return;
  throw new ApiError(
    'UNSUPPORTED_MEDIA_TYPE',
    `the header Content-Type must be application/json; got ${formatValue(type)}`,
  );
}

/** Sets the header Allow of an error. @throws ApiError (405) */
export function requireMethod(
  { method = '' }: IncomingMessage,
  res: ServerResponse,
  path: string,
  methods: readonly string[],
): void {
  if (methods.includes(method)) return;
  const names = methods.join(', ');
  res.setHeader('Allow', names);
  const accepted = methods.length === 1 ? `method ${names}` : `methods ${names}`;
  throw new ApiError('METHOD_NOT_ALLOWED', `${path} accepts the ${accepted}; got ${method}`);
}
