/**
 * Writes answers. One `Replies` per acceptor and version of the API; it knows whether the service
 * is draining, in which case every answer closes its connection, and counts the errors.
 */

import type { RequestIds } from '../api/common/request-ids.ts';
import type { ResponseFormat } from '../api/common/versions.ts';
import { ApiError, ERRORS, statusOf } from '../core/errors.ts';
import type { AcceptorStats } from '../shared-memory/stats.ts';
import type { ErrorReporter } from './error-reporter.ts';
import type { ResponseWriter } from './response-writer.ts';
import { fixedText, type HttpResponse } from './uws.ts';

/** A failure of ours, for the log. */
export interface InternalErrorReport {
  requestId: string;
  message: string;
  stack: string | undefined;
}

/** Whatever is not to be had comes back within a second. */
const RETRY_AFTER_S = '1';

interface ErrorResponseOptions {
  /** The header Allow of a 405. */
  allow?: string;
  /** The method is HEAD: the answer has the length of the body, and no body. */
  isHead?: boolean;
  /** The connection is told before it has sent anything, and closed at once. */
  closeConnection?: boolean;
}

/**
 * uWebSockets.js closes a connection that has had no request for 8 to 12 s. A client that is told
 * lets go of it before; one that is not loses a request now and then, which meets the close.
 */
const KEEP_ALIVE = 'timeout=7';

/** How nearly all answers begin: in one piece, which takes less to copy. */
const OK = fixedText(`200 OK\r\nContent-Type: application/json\r\nKeep-Alive: ${KEEP_ALIVE}`);
/** The same of the last answer of a connection. */
const OK_CLOSE = fixedText('200 OK\r\nContent-Type: application/json');

export class Responder {
  isDraining = false;
  readonly #format: ResponseFormat;
  readonly #requestIds: RequestIds;
  readonly #stats: AcceptorStats;
  readonly #writer: ResponseWriter;
  readonly #docsUrl: string;
  readonly #reportInternalError: (failure: InternalErrorReport) => void;
  readonly #errorReporter: ErrorReporter | undefined;

  /**
   * @param docsUrl where the pages about errors are, without the code
   * @param errorReporter where the log has level debug
   */
  constructor(
    format: ResponseFormat,
    requestIds: RequestIds,
    stats: AcceptorStats,
    writer: ResponseWriter,
    docsUrl: string,
    reportInternalError: (failure: InternalErrorReport) => void,
    errorReporter?: ErrorReporter,
  ) {
    this.#format = format;
    this.#requestIds = requestIds;
    this.#stats = stats;
    this.#writer = writer;
    this.#docsUrl = docsUrl;
    this.#reportInternalError = reportInternalError;
    this.#errorReporter = errorReporter;
  }

  /** Serves nothing after this request on its connection, whatever its answer is. */
  closeAfterResponse(res: HttpResponse): void {
    this.#writer.closeAfterResponse(res);
  }

  /** @param body copied before this returns */
  sendJson(res: HttpResponse, body: string | Uint8Array): void {
    if (this.#writer.isClosing(res)) {
      this.#writer.respond(res, true, () => res.writeStatus(OK_CLOSE), body);
      return;
    }
    this.#writer.end(res.writeStatus(this.isDraining ? OK_CLOSE : OK), body, this.isDraining);
  }

  /** What an operation answers, as this version has it. */
  sendResult(res: HttpResponse, json: string): void {
    this.sendJson(res, this.#format.successBody(json, this.#requestIds.next()));
  }

  sendPage(res: HttpResponse, html: string, isHead: boolean): void {
    this.#stats.heartbeat();
    const writeHead = (close: boolean) => {
      res.writeHeader('Content-Type', 'text/html; charset=utf-8');
      if (!close) res.writeHeader('Keep-Alive', KEEP_ALIVE);
    };
    this.#writer.respond(res, this.isDraining, writeHead, html, isHead);
  }

  /** Answers whatever was thrown: an ApiError as it says, anything else with a 500. */
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
    this.#writer.respond(
      res,
      this.isDraining || options.closeConnection === true,
      writeHead,
      body,
      isHead,
    );
  }

  /** Reports a failure that is answered otherwise. */
  reportError(res: HttpResponse, thrown: unknown): void {
    const requestId = this.#requestIds.next();
    const error = thrown instanceof ApiError ? thrown : this.#toInternalError(thrown, requestId);
    this.#errorReporter?.report(res, undefined, error.code, requestId, error.message);
  }

  /** The client is told nothing of it but where to look. */
  #toInternalError(thrown: unknown, requestId: string): ApiError {
    const { message, stack } = thrown instanceof Error ? thrown : new Error(String(thrown));
    this.#reportInternalError({ requestId, message, stack });
    return new ApiError('INTERNAL_SERVER_ERROR', 'the service failed; its log says why');
  }
}
