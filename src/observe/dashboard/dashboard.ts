/**
 * The dashboard on the admin port: its page and files, sign-in, the event stream, and the
 * operations of the API that it uses. Everything but the files needs a session. A request that may
 * change something must come from the dashboard's own page: it has the port's own `Origin`, and a
 * token that only this page can read. The main thread loads this module at the first request.
 *
 * A session starts with a key or, where a proxy signs in users, without one. A GET starts none, so
 * that a link or an image of another page cannot replace the session of a user.
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
import type { Role } from '../../auth/roles.ts';
import { userNameOf } from '../../auth/users.ts';
import type { DashboardProxy } from '../../config/dashboard-proxy.ts';
import { KEY_MAX_CHARACTERS } from '../../core/constants.ts';
import { formatValue } from '../../core/describe.ts';
import { ApiError, statusOf } from '../../core/errors.ts';
import type { Log } from '../../core/log.ts';
import {
  createStrictValidator,
  createValidator,
  field,
  JSON_OBJECT,
  text,
} from '../../core/schema.ts';
import { VERSION } from '../../core/version.ts';
import type { Clock } from '../../shared-memory/clock.ts';
import { LATENCY_BOUNDS_US } from '../../shared-memory/stats.ts';
import type { AdminPages } from '../admin.ts';
import type { LatencyHistory } from '../latency-history.ts';
import { EventStreams } from './event-streams.ts';
import { DashboardFiles, FILES_PATH } from './files.ts';
import { MinuteReader, type MinutesSources } from './minutes.ts';
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
import { type Session, Sessions, type StartedSession } from './sessions.ts';
import { SignInProxy } from './sign-in-proxy.ts';
import type { KeyHolder, SessionInfo, SessionState } from './snapshot.ts';

/** Runs operations for the holder of a key, who is verified again when they run, or for a user. */
export interface Operations {
  /**
   * @param holderId the id of a key or of a user
   * @param input the body of a POST, the query of a GET
   */
  execute(
    operation: OperationName,
    holderId: string,
    input: Uint8Array | string,
  ): Promise<CounterOperationResult | ApiError>;
  /**
   * An operation on counters, which an acceptor runs.
   * @param role of a user
   * @throws ApiError (503)
   */
  runOnCounters(
    operation: CounterOperationName,
    holderId: string,
    role: Role | undefined,
    body: Uint8Array,
  ): Promise<CounterOperationResult>;
}

export interface DashboardSources extends SamplerSources, MinutesSources {
  operations: Operations;
  engineName: 'memory' | 'redis';
  /** URL of the port for checks; undefined where clients know it by several. */
  checkUrl: string | undefined;
  /** Undefined where no proxy signs in users. */
  proxy: DashboardProxy | undefined;
  /** Keeps a connection of the admin port from counting as idle. */
  keepConnection: (socket: Socket) => void;
  clock: Clock;
  latencyHistory: LatencyHistory;
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
/** Unlike the one above it rejects unknown fields: a key would be ignored. */
const userSignInValidator = createStrictValidator(Type.Object({}, JSON_OBJECT));

export class Dashboard implements AdminPages {
  readonly #sources: DashboardSources;
  readonly #sessions: Sessions;
  readonly #streams: EventStreams;
  readonly #proxy: SignInProxy | undefined;
  readonly #requestIds = new RequestIds();
  readonly #bodies = new BodyBuffers();
  #files: DashboardFiles | undefined;

  constructor(sources: DashboardSources) {
    const { registry, clock, keepConnection, proxy } = sources;
    const [sampler, minutes] = [new Sampler(sources), new MinuteReader(sources)];
    this.#sources = sources;
    this.#proxy = proxy && new SignInProxy(proxy);
    this.#streams = new EventStreams(sampler, minutes, keepConnection);
    this.#sessions = new Sessions(registry, proxy?.roles, clock, (session, reason) => {
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
      const session = this.#use(req);
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
      const session = this.#use(req);
      requireToken(req, session);
      this.#sessions.end(session, 'you have signed out');
      return sendJson(res, 200, '{}', {
        'Set-Cookie': `${cookie}=; ${cookieFlags(req)}; Max-Age=0`,
      });
    }
    requireOrigin(req);
    requireJson(req);
    const user = this.#userOf(req);
    const body = parseBody(await this.#bodies.read(req, SIGN_IN_MAX_BYTES));
    const earlierId = readCookie(req, cookie);
    const { session, id } =
      user === undefined ? this.#signIn(body, earlierId) : this.#signInUser(user, body, earlierId);
    sendJson(res, 200, JSON.stringify({ session: this.#infoOf(session) }), {
      'Set-Cookie': `${cookie}=${id}; ${cookieFlags(req)}`,
    });
  }

  #signIn(body: unknown, earlierId: string | undefined): StartedSession {
    const { key } = signInValidator.validate(body);
    const { log } = this.#sources;
    try {
      const signedIn = this.#sessions.signIn(key, earlierId);
      log.info({ keyId: signedIn.session.holderId }, 'dashboard: signed in');
      return signedIn;
    } catch (error) {
      const { code, message } = error as ApiError;
      if (code === 'UNAUTHORIZED') log.warn(`dashboard: a sign-in has failed: ${message}`);
      throw error;
    }
  }

  #signInUser(user: string, body: unknown, earlierId: string | undefined): StartedSession {
    userSignInValidator.validate(body);
    const signedIn = this.#sessions.signInUser(user, earlierId);
    this.#sources.log.info({ user, role: signedIn.session.role }, 'dashboard: signed in');
    return signedIn;
  }

  /**
   * @returns the user whom a proxy has signed in; undefined where the request comes without one
   * @throws ApiError (400, 403, or 503 where many sign-ins have failed)
   */
  #userOf(req: IncomingMessage): string | undefined {
    try {
      return this.#proxy?.userOf(req);
    } catch (error) {
      this.#sessions.countFailure();
      const { message } = error as ApiError;
      this.#sources.log.warn(`dashboard: a sign-in by the proxy has failed: ${message}`);
      throw error;
    }
  }

  async #respondToOperation(
    req: IncomingMessage,
    res: ServerResponse,
    name: string,
  ): Promise<void> {
    const session = this.#use(req);
    const { operations } = this.#sources;
    const { holderId, role } = session;
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
      result = await operations.execute(operation!, holderId, queryOf(req));
    } else {
      requireToken(req, session);
      requireJson(req);
      const body = await this.#bodies.read(req, spec.maxBytes);
      result = counterOperation
        ? await operations.runOnCounters(counterOperation, holderId, role, body)
        : await operations.execute(operation!, holderId, body);
    }
    if (result instanceof ApiError) throw result;
    sendJson(res, result.status, result.body);
  }

  /** @throws ApiError (401; where a proxy signs in users also 400, 403, 503) */
  #use(req: IncomingMessage): Session {
    const user = this.#userOf(req);
    return this.#sessions.use(readCookie(req, cookieName(req)), user);
  }

  #state(req: IncomingMessage): SessionState {
    const { checkUrl } = this.#sources;
    const user = this.#userOf(req);
    return {
      session: this.#currentInfo(req, user),
      ...(user !== undefined && { user }),
      ...(checkUrl !== undefined && { keysUrl: checkUrl + KEYS_DOCS_PATH }),
    };
  }

  /** @returns null where there is no session, which is no error before a sign-in */
  #currentInfo(req: IncomingMessage, user: string | undefined): SessionInfo | null {
    try {
      return this.#infoOf(this.#sessions.use(readCookie(req, cookieName(req)), user));
    } catch (error) {
      if (error instanceof ApiError && error.code === 'UNAUTHORIZED') return null;
      throw error;
    }
  }

  #infoOf({ holderId, role, permissions, csrfToken }: Session): SessionInfo {
    return {
      holder:
        role === undefined
          ? keyHolder(this.#sources.registry.key(holderId)!)
          : { user: userNameOf(holderId)!, role },
      permissions,
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

function keyHolder({ id: keyId, name: keyName, expiresMs }: KeyRecord): KeyHolder {
  return { keyId, keyName, ...(expiresMs !== null && { keyExpires: expiresMs }) };
}

function sendJson(res: ServerResponse, status: number, body: string, headers: object = {}): void {
  const length = { 'Content-Length': Buffer.byteLength(body) };
  res.writeHead(status, { ...JSON_HEADERS, ...length, ...headers }).end(body);
}
