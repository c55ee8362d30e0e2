/**
 * Writes answers. One `Replies` per acceptor; it knows whether the service is draining, in which
 * case every answer closes its connection, and counts the errors.
 */

import { makeId } from '../auth/keys.ts';
import { ApiError, ERRORS, type ErrorCode } from '../errors.ts';
import type { AcceptorLane } from '../lanes.ts';
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
  /** The request was a HEAD: a body behind the answer would be read as the next one. */
  isHead?: boolean;
}

const CONTENT_TYPE = fixedText('Content-Type');
const JSON_TYPE = fixedText('application/json');

export class Replies {
  draining = false;
  readonly #lane: AcceptorLane;
  readonly #docsUrl: string;
  readonly #report: (failure: Failure) => void;

  /** @param docsUrl where the pages about errors are, without the code */
  constructor(lane: AcceptorLane, docsUrl: string, report: (failure: Failure) => void) {
    this.#lane = lane;
    this.#docsUrl = docsUrl;
    this.#report = report;
  }

  json(res: HttpResponse, body: string): void {
    res.writeHeader(CONTENT_TYPE, JSON_TYPE).end(body, this.draining);
  }

  page(res: HttpResponse, html: string): void {
    this.#lane.beat();
    res.writeHeader('Content-Type', 'text/html; charset=utf-8').end(html, this.draining);
  }

  /** Answers whatever was thrown: an ApiError as it says, anything else with a 500. */
  error(res: HttpResponse, thrown: unknown, { allow, isHead }: ErrorOptions = {}): void {
    const requestId = makeId('req_');
    const known = thrown instanceof ApiError;
    const code: ErrorCode = known ? thrown.code : 'INTERNAL_SERVER_ERROR';
    const message = known ? thrown.message : 'the service failed; its log says why';
    this.#lane.error(code);
    if (!known) {
      const { message: cause, stack } =
        thrown instanceof Error ? thrown : new Error(String(thrown));
      this.#report({ requestId, message: cause, stack });
    }
    const docs = this.#docsUrl + code;
    res.writeStatus(ERRORS[code].status).writeHeader('Content-Type', 'application/json');
    res.writeHeader('X-Request-Id', requestId);
    if (allow !== undefined) res.writeHeader('Allow', allow);
    if (code === 'SERVICE_UNAVAILABLE') res.writeHeader('Retry-After', RETRY_AFTER_S);
    // A body that is too large is still arriving: the connection is of no more use.
    const close = this.draining || code === 'PAYLOAD_TOO_LARGE';
    // Not by `endWithoutBody`: it leaves the answer open, and the next request closes the
    // connection.
    res.end(isHead ? '' : JSON.stringify({ error: { code, docs, message, requestId } }), close);
  }
}
