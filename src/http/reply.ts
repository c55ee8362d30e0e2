/**
 * Writes answers. One `Replies` per acceptor and version of the API; it knows whether the service
 * is draining, in which case every answer closes its connection, and counts the errors.
 */

import type { Face } from '../api/faces.ts';
import type { RequestIds } from '../api/request-ids.ts';
import { ApiError, ERRORS, statusOf } from '../errors.ts';
import type { AcceptorLane } from '../lanes.ts';
import type { ErrorReports } from './error-reports.ts';
import type { Outlet } from './outlet.ts';
import { fixedText, type HttpResponse } from './uws.ts';

/** A failure of ours, for the log. */
export interface Failure {
  requestId: string;
  message: string;
  stack: string | undefined;
}

/** Whatever is not to be had comes back within a second. */
const RETRY_AFTER_S = '1';

interface ErrorOptions {
  /** The header Allow of a 405. */
  allow?: string;
  /** The method is HEAD: the answer has the length of the body, and no body. */
  isHead?: boolean;
  /** The connection is told before it has sent anything, and closed at once. */
  close?: boolean;
}

/**
 * uWebSockets.js closes a connection that has had no request for 8 to 12 s. A client that is told
 * lets go of it before; one that is not loses a request now and then, which meets the close.
 */
const KEEP_ALIVE = 'timeout=7';

/** How nearly all answers begin: in one piece, which takes less to copy. */
const OK = fixedText(`200 OK\r\nContent-Type: application/json\r\nKeep-Alive: ${KEEP_ALIVE}`);
/** The same of the last answer of a connection. */
const OK_LAST = fixedText('200 OK\r\nContent-Type: application/json');

export class Replies {
  draining = false;
  readonly #face: Face;
  readonly #ids: RequestIds;
  readonly #lane: AcceptorLane;
  readonly #outlet: Outlet;
  readonly #docsUrl: string;
  readonly #report: (failure: Failure) => void;
  readonly #reports: ErrorReports | undefined;

  /**
   * @param docsUrl where the pages about errors are, without the code
   * @param reports where the log has level debug
   */
  constructor(
    face: Face,
    ids: RequestIds,
    lane: AcceptorLane,
    outlet: Outlet,
    docsUrl: string,
    report: (failure: Failure) => void,
    reports?: ErrorReports,
  ) {
    this.#face = face;
    this.#ids = ids;
    this.#lane = lane;
    this.#outlet = outlet;
    this.#docsUrl = docsUrl;
    this.#report = report;
    this.#reports = reports;
  }

  /** Serves nothing after this request on its connection, whatever its answer is. */
  closeAfter(res: HttpResponse): void {
    this.#outlet.closeAfter(res);
  }

  /** @param body copied before this returns */
  json(res: HttpResponse, body: string | Uint8Array): void {
    if (this.#outlet.isClosing(res)) {
      this.#outlet.answer(res, true, () => res.writeStatus(OK_LAST), body);
      return;
    }
    this.#outlet.end(res.writeStatus(this.draining ? OK_LAST : OK), body, this.draining);
  }

  /** What an operation answers, as this version has it. */
  answer(res: HttpResponse, text: string): void {
    this.json(res, this.#face.answer(text, this.#ids.next()));
  }

  page(res: HttpResponse, html: string, isHead: boolean): void {
    this.#lane.beat();
    const writeHead = (close: boolean) => {
      res.writeHeader('Content-Type', 'text/html; charset=utf-8');
      if (!close) res.writeHeader('Keep-Alive', KEEP_ALIVE);
    };
    this.#outlet.answer(res, this.draining, writeHead, html, isHead);
  }

  /** Answers whatever was thrown: an ApiError as it says, anything else with a 500. */
  error(res: HttpResponse, thrown: unknown, options: ErrorOptions = {}): void {
    const { allow, isHead } = options;
    const requestId = this.#ids.next();
    const error = thrown instanceof ApiError ? thrown : this.#ownFailure(thrown, requestId);
    const code = this.#face.codeOf(error);
    const body = this.#face.error(error, code, this.#docsUrl + code, requestId);
    this.#lane.error(code);
    this.#reports?.report(res, statusOf(code), code, requestId, error.message);
    const writeHead = (close: boolean) => {
      res.writeStatus(ERRORS[code].status).writeHeader('Content-Type', 'application/json');
      res.writeHeader('X-Request-Id', requestId);
      if (allow !== undefined) res.writeHeader('Allow', allow);
      if (code === 'SERVICE_UNAVAILABLE') res.writeHeader('Retry-After', RETRY_AFTER_S);
      if (!close) res.writeHeader('Keep-Alive', KEEP_ALIVE);
    };
    this.#outlet.answer(res, this.draining || options.close === true, writeHead, body, isHead);
  }

  /** Reports a failure that is answered otherwise. */
  report(res: HttpResponse, thrown: unknown): void {
    const requestId = this.#ids.next();
    const error = thrown instanceof ApiError ? thrown : this.#ownFailure(thrown, requestId);
    this.#reports?.report(res, undefined, error.code, requestId, error.message);
  }

  /** The client is told nothing of it but where to look. */
  #ownFailure(thrown: unknown, requestId: string): ApiError {
    const { message, stack } = thrown instanceof Error ? thrown : new Error(String(thrown));
    this.#report({ requestId, message, stack });
    return new ApiError('INTERNAL_SERVER_ERROR', 'the service failed; its log says why');
  }
}
