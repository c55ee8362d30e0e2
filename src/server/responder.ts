/**
 * Sends the responses of one version of the API on an acceptor, and counts errors. While the
 * service drains, every response closes its connection.
 */

import type { RequestIds } from '../api/common/request-ids.ts';
import type { ResponseFormat } from '../api/common/versions.ts';
import { ApiError, ERRORS, statusOf } from '../core/errors.ts';
import type { InternalErrorReport } from '../decision-thread/messages.ts';
import type { AcceptorStats } from '../shared-memory/stats.ts';
import type { ErrorReporter } from './error-reporter.ts';
import type { Page, ResponseWriter } from './response-writer.ts';
import type { Turns } from './turns.ts';
import { fixedText, type HttpResponse } from './uws.ts';

/** Seconds: the cause of a 503 ends within that time. */
const RETRY_AFTER_S = '1';

interface ErrorResponseOptions {
  /** The header Allow of a 405. */
  allow?: string;
  /** The method is HEAD: the response has the length of the body, but no body. */
  isHead?: boolean;
  /** Close the connection after the response. */
  closeConnection?: boolean;
}

const NOT_MODIFIED = '304 Not Modified';
type PageStatus = '200 OK' | typeof NOT_MODIFIED | '308 Permanent Redirect';

/**
 * uWebSockets.js closes a connection after 8 to 12 s without a request. A client with this header
 * closes first; without it, a request now and then crosses the close and is lost.
 */
const KEEP_ALIVE = 'timeout=7';

/** The head of nearly all responses, in one piece, which costs less to copy. */
const OK = fixedText(`200 OK\r\nContent-Type: application/json\r\nKeep-Alive: ${KEEP_ALIVE}`);
/** The head of the last response of a connection. */
const OK_CLOSE = fixedText('200 OK\r\nContent-Type: application/json');

export class Responder {
  isDraining = false;
  readonly #format: ResponseFormat;
  readonly #requestIds: RequestIds;
  readonly #stats: AcceptorStats;
  readonly #writer: ResponseWriter;
  readonly #turns: Turns;
  readonly #docsUrl: string;
  readonly #reportInternalError: (failure: InternalErrorReport) => void;
  readonly #errorReporter: ErrorReporter | undefined;

  /**
   * @param docsUrl URL of the pages about errors, without the code
   * @param errorReporter only at log level debug
   */
  constructor(
    format: ResponseFormat,
    requestIds: RequestIds,
    stats: AcceptorStats,
    writer: ResponseWriter,
    turns: Turns,
    docsUrl: string,
    reportInternalError: (failure: InternalErrorReport) => void,
    errorReporter?: ErrorReporter,
  ) {
    this.#format = format;
    this.#requestIds = requestIds;
    this.#stats = stats;
    this.#writer = writer;
    this.#turns = turns;
    this.#docsUrl = docsUrl;
    this.#reportInternalError = reportInternalError;
    this.#errorReporter = errorReporter;
  }

  /** Serves no request after this one on its connection, whatever the response is. */
  closeAfterResponse(res: HttpResponse): void {
    this.#writer.closeAfterResponse(res);
  }

  /** @param body copied before this returns */
  sendJson(res: HttpResponse, body: string | Uint8Array): void {
    if (this.#writer.isClosing(res)) {
      this.#writer.respond(res, true, () => res.writeStatus(OK_CLOSE), body);
      return;
    }
    const head = this.isDraining ? OK_CLOSE : OK;
    this.#writer.end(res.writeStatus(head), this.#turns.lengthenLast(body), this.isDraining);
  }

  /** Sends the object that an operation returned, in the envelope of this version. */
  sendResult(res: HttpResponse, json: string): void {
    this.sendJson(res, this.#format.successBody(json, this.#requestIds.next()));
  }

  /**
   * Sends a page that needs no key.
   * @param status a 304 has no body
   */
  sendPage(
    res: HttpResponse,
    status: PageStatus,
    headers: Readonly<Record<string, string>>,
    page: Page,
    isHead: boolean,
  ): void {
    this.#stats.heartbeat();
    const writeHead = (close: boolean) => {
      res.writeStatus(status);
      for (const [name, value] of Object.entries(headers)) res.writeHeader(name, value);
      if (!close) res.writeHeader('Keep-Alive', KEEP_ALIVE);
    };
    const isWithoutBody = isHead || status === NOT_MODIFIED;
    const close = this.isDraining || (isWithoutBody && this.#writer.closesUnchecked());
    this.#writer.respondPage(res, close, writeHead, page, isWithoutBody);
  }

  /** Sends an ApiError as it is, and a 500 for any other thrown value. */
  sendError(res: HttpResponse, thrown: unknown, options: ErrorResponseOptions = {}): void {
    const { allow, isHead } = options;
    const requestId = this.#requestIds.next();
    const error = thrown instanceof ApiError ? thrown : this.#toInternalError(thrown, requestId);
    const code = this.#format.errorCode(error);
    const body = this.#format.errorBody(error, code, this.#docsUrl + code, requestId);
    this.#stats.incrementErrors(code);
    this.#errorReporter?.report(res, statusOf(code), code, requestId, error.message);
    const writeHead = (close: boolean) => {
      res.writeStatus(ERRORS[code].status).writeHeader('Content-Type', 'application/json');
      res.writeHeader('X-Request-Id', requestId);
      if (allow !== undefined) res.writeHeader('Allow', allow);
      if (code === 'SERVICE_UNAVAILABLE') res.writeHeader('Retry-After', RETRY_AFTER_S);
      if (!close) res.writeHeader('Keep-Alive', KEEP_ALIVE);
    };
    const close =
      this.isDraining ||
      options.closeConnection === true ||
      (isHead === true && this.#writer.closesUnchecked());
    const sent = isHead ? body : this.#turns.lengthenLast(body);
    this.#writer.respond(res, close, writeHead, sent, isHead);
  }

  /** Reports an error whose response is not an error response. */
  reportError(res: HttpResponse, thrown: unknown): void {
    const requestId = this.#requestIds.next();
    const error = thrown instanceof ApiError ? thrown : this.#toInternalError(thrown, requestId);
    this.#errorReporter?.report(res, undefined, error.code, requestId, error.message);
  }

  /** The response refers to the log and shows nothing of the error. */
  #toInternalError(thrown: unknown, requestId: string): ApiError {
    const { message, stack } = thrown instanceof Error ? thrown : new Error(String(thrown));
    this.#reportInternalError({ requestId, message, stack });
    return new ApiError(
      'INTERNAL_SERVER_ERROR',
      'internal error; see the log of the service for this requestId',
    );
  }
}
