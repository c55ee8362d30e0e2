/**
 * The dashboard on the admin port: its page and files, sign-in, the event stream, and the
 * operations of the API that it uses. Everything but the files needs a session. A request that may
 * change something must come from the dashboard's own page: it has the port's own `Origin`, and a
 * token that only this page can read. The main thread loads this module at the first request.
 *
 * Errors have the form of the API. An internal one is logged, and its response shows nothing of it.
 */

import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { hostname } from 'node:os';
import Type from 'typebox';
import { parseBody } from '../../api/common/input.ts';
import { ERROR_PAGES_PATH, KEYS_DOCS_PATH } from '../../api/common/paths.ts';
import { RequestIds } from '../../api/common/request-ids.ts';
import { RESPONSE_FORMATS } from '../../api/common/versions.ts';
import {
  COUNTER_OPERATION_NAMES,
  COUNTER_OPERATIONS,
  type CounterOperationName,
} from '../../api/operations/counter-operations.ts';
import {
  OPERATION_NAMES,
  OPERATIONS,
  type OperationName,
} from '../../api/operations/main-operations.ts';
import type { CounterOperationResult } from '../../api/operations/messages.ts';
import type { KeyRecord } from '../../auth/keys.ts';
import { KEY_MAX_CHARACTERS } from '../../core/constants.ts';
import { formatValue } from '../../core/describe.ts';
import { ApiError, statusOf } from '../../core/errors.ts';
import type { Log } from '../../core/log.ts';
import { createValidator, field, JSON_OBJECT, text } from '../../core/schema.ts';
import { VERSION } from '../../core/version.ts';
import { LATENCY_BOUNDS_US } from '../../shared-memory/stats.ts';
import type { AdminPages } from '../admin.ts';
import { EventStreams } from './event-streams.ts';
import { DashboardFiles, FILES_PATH } from './files.ts';
import {
  BodyBuffers,
  cookieFlags,
  cookieName,
  queryOf,
  readCookie,
  requireJson,
  requireMethod,
  requireOrigin,
  requireToken,
} from './requests.ts';
import { Sampler, type SamplerSources } from './sampler.ts';
import { type Session, Sessions } from './sessions.ts';
import type { SessionInfo, SessionState } from './snapshot.ts';

/** Runs operations for the holder of a key, who is verified again when they run. */
export interface Operations {
  /** @param input the body of a POST, the query of a GET */
  execute(
    operation: OperationName,
    keyId: string,
    input: Uint8Array | string,
  ): Promise<CounterOperationResult | ApiError>;
  /** An operation on counters, which an acceptor runs. @throws ApiError (503) */
  runOnCounters(
    operation: CounterOperationName,
    keyId: string,
    body: Uint8Array,
  ): Promise<CounterOperationResult>;
}

export interface DashboardSources extends SamplerSources {
  operations: Operations;
  engineName: 'memory' | 'redis';
  /** URL of the port for checks; undefined where clients know it by several. */
  checkUrl: string | undefined;
  /** Keeps a connection of the admin port from counting as idle. */
  keepConnection: (socket: Socket) => void;
  log: Log;
}

const SESSION_PATH = '/dashboard/session';
const EVENTS_PATH = '/dashboard/events';
const API_PATH = '/dashboard/api/';

const SIGN_IN_MAX_BYTES = 4_096;
const RETRY_AFTER_S = '1';

const CONTENT_SECURITY_POLICY = [
  "default-src 'self'",
  "object-src 'none'",
  "base-uri 'none'",
  "form-action 'self'",
  "frame-ancestors 'none'",
  "require-trusted-types-for 'script'",
].join('; ');
const SECURITY_HEADERS = {
  'Content-Security-Policy': CONTENT_SECURITY_POLICY,
  'Cross-Origin-Opener-Policy': 'same-origin',
  'Cross-Origin-Resource-Policy': 'same-origin',
  'Referrer-Policy': 'no-referrer',
  'X-Content-Type-Options': 'nosniff',
} as const;
const JSON_HEADERS = {
  ...SECURITY_HEADERS,
  'Content-Type': 'application/json',
  'Cache-Control': 'no-store',
} as const;
const STREAM_HEADERS = { ...SECURITY_HEADERS, 'Cache-Control': 'no-store' } as const;

const signInValidator = createValidator(
  Type.Object({ key: field(text(1, KEY_MAX_CHARACTERS), 'An API key.') }, JSON_OBJECT),
);

export class Dashboard implements AdminPages {
  readonly #sources: DashboardSources;
  readonly #sessions: Sessions;
  readonly #streams: EventStreams;
  readonly #requestIds = new RequestIds();
  readonly #bodies = new BodyBuffers();
  #files: DashboardFiles | undefined;

  constructor(sources: DashboardSources) {
    const { registry, clock, keepConnection } = sources;
    this.#sources = sources;
    this.#streams = new EventStreams(new Sampler(sources), registry, keepConnection);
    this.#sessions = new Sessions(registry, clock, (session, reason) => {
      this.#streams.end(session, 'signed-out', reason);
    });
  }

  /** Called when keys were removed: their sessions end at once. */
  endInvalidSessions(): void {
    this.#sessions.endInvalid();
  }

  async respond(req: IncomingMessage, res: ServerResponse, path: string): Promise<void> {
    try {
      await this.#respond(req, res, path);
    } catch (error) {
      if (res.headersSent) res.destroy();
      else this.#sendError(req, res, error);
    }
  }

  async #respond(req: IncomingMessage, res: ServerResponse, path: string): Promise<void> {
    if (path === SESSION_PATH) return this.#respondAboutSession(req, res);
    if (path === EVENTS_PATH) {
      requireMethod(req, res, path, ['GET']);
      const { session } = this.#use(req);
      return this.#streams.open(session, res, STREAM_HEADERS, this.#sessions);
    }
    if (path.startsWith(API_PATH)) {
      return this.#respondToOperation(req, res, path.slice(API_PATH.length));
    }
    if (path === '/dashboard' || path === '/dashboard/') {
      res.writeHead(308, { ...SECURITY_HEADERS, Location: '/' }).end();
      return;
    }
    if (path === '/' || path.startsWith(FILES_PATH)) {
      requireMethod(req, res, path, ['GET', 'HEAD']);
      this.#files ??= new DashboardFiles();
      if (this.#files.send(req, res, path, SECURITY_HEADERS)) return;
    }
    throw new ApiError('NOT_FOUND', `there is no ${path}`);
  }

  async #respondAboutSession(req: IncomingMessage, res: ServerResponse): Promise<void> {
    requireMethod(req, res, SESSION_PATH, ['GET', 'POST', 'DELETE']);
    const cookie = cookieName(req);
    if (req.method === 'GET') {
      return sendJson(res, 200, JSON.stringify(this.#state(req)));
    }
    if (req.method === 'DELETE') {
      const { session } = this.#use(req);
      requireToken(req, session);
      this.#sessions.end(session, 'you have signed out');
      return sendJson(res, 200, '{}', {
        'Set-Cookie': `${cookie}=; ${cookieFlags(req)}; Max-Age=0`,
      });
    }
    requireOrigin(req);
    requireJson(req);
    const body = parseBody(await this.#bodies.read(req, SIGN_IN_MAX_BYTES));
    const { key } = signInValidator.validate(body);
    const { session, id } = this.#signIn(key, readCookie(req, cookie));
    const info = this.#infoOf(session, this.#sources.registry.key(session.keyId)!);
    sendJson(res, 200, JSON.stringify({ session: info }), {
      'Set-Cookie': `${cookie}=${id}; ${cookieFlags(req)}`,
    });
  }

  #signIn(key: string, earlierId: string | undefined): { session: Session; id: string } {
    const { log } = this.#sources;
    try {
      const signedIn = this.#sessions.signIn(key, earlierId);
      log.info({ keyId: signedIn.session.keyId }, 'dashboard: signed in');
      return signedIn;
    } catch (error) {
      const { code, message } = error as ApiError;
      if (code === 'UNAUTHORIZED') log.warn(`dashboard: a sign-in has failed: ${message}`);
      throw error;
    }
  }

  async #respondToOperation(
    req: IncomingMessage,
    res: ServerResponse,
    name: string,
  ): Promise<void> {
    const { session } = this.#use(req);
    const { operations } = this.#sources;
    const { keyId } = session;
    const counterOperation = COUNTER_OPERATION_NAMES.find((known) => known === name);
    const operation = OPERATION_NAMES.find((known) => known === name);
    const spec = counterOperation
      ? COUNTER_OPERATIONS[counterOperation]
      : operation && OPERATIONS[operation];
    if (spec === undefined || spec.version !== 'v1') {
      throw new ApiError('NOT_FOUND', `there is no operation ${formatValue(name)} in v1`);
    }
    requireMethod(req, res, API_PATH + name, [spec.method]);
    let result: CounterOperationResult | ApiError;
    if (spec.method === 'GET') {
      result = await operations.execute(operation!, keyId, queryOf(req));
    } else {
      requireToken(req, session);
      requireJson(req);
      const body = await this.#bodies.read(req, spec.maxBytes);
      result = counterOperation
        ? await operations.runOnCounters(counterOperation, keyId, body)
        : await operations.execute(operation!, keyId, body);
    }
    if (result instanceof ApiError) throw result;
    sendJson(res, result.status, result.body);
  }

  /** @throws ApiError (401) */
  #use(req: IncomingMessage): { session: Session; key: KeyRecord } {
    return this.#sessions.use(readCookie(req, cookieName(req)));
  }

  #state(req: IncomingMessage): SessionState {
    const { checkUrl } = this.#sources;
    return {
      session: this.#currentInfo(req),
      ...(checkUrl !== undefined && { keysUrl: checkUrl + KEYS_DOCS_PATH }),
    };
  }

  /** @returns null where there is no session, which is no error before a sign-in */
  #currentInfo(req: IncomingMessage): SessionInfo | null {
    try {
      const { session, key } = this.#use(req);
      return this.#infoOf(session, key);
    } catch (error) {
      if (error instanceof ApiError && error.code === 'UNAUTHORIZED') return null;
      throw error;
    }
  }

  #infoOf({ keyId, csrfToken }: Session, { name, permissions, expiresMs }: KeyRecord): SessionInfo {
    return {
      keyId,
      keyName: name,
      permissions,
      ...(expiresMs !== null && { keyExpires: expiresMs }),
      csrfToken,
      server: {
        version: VERSION,
        engine: this.#sources.engineName,
        host: hostname(),
        latencyBoundsUs: LATENCY_BOUNDS_US,
      },
    };
  }

  #sendError(req: IncomingMessage, res: ServerResponse, thrown: unknown): void {
    const requestId = this.#requestIds.next();
    const error = thrown instanceof ApiError ? thrown : this.#toInternalError(thrown, requestId);
    const { code } = error;
    const docs = (this.#sources.checkUrl ?? '') + ERROR_PAGES_PATH + code;
    const headers = {
      'X-Request-Id': requestId,
      ...(code === 'SERVICE_UNAVAILABLE' && { 'Retry-After': RETRY_AFTER_S }),
      // The rest of a body that was not read would be the next request.
      ...(!req.complete && { Connection: 'close' }),
    };
    const body = RESPONSE_FORMATS.v1.errorBody(error, code, docs, requestId);
    sendJson(res, statusOf(code), body, headers);
  }

  #toInternalError(thrown: unknown, requestId: string): ApiError {
    const { message, stack } = thrown instanceof Error ? thrown : new Error(String(thrown));
    this.#sources.log.error({ requestId, message, stack }, 'a request to the dashboard failed');
    return new ApiError(
      'INTERNAL_SERVER_ERROR',
      'internal error; see the log of the service for this requestId',
    );
  }
}

function sendJson(res: ServerResponse, status: number, body: string, headers: object = {}): void {
  const length = { 'Content-Length': Buffer.byteLength(body) };
  res.writeHead(status, { ...JSON_HEADERS, ...length, ...headers }).end(body);
}
