/**
 * Reports error answers of an acceptor to the main thread, for the log at level debug: at most
 * ERROR_REPORTS_PER_S a second, and how many were left out. At other levels there is none of this,
 * and no request costs more.
 */

import { ERROR_REPORTS_PER_S } from '../core/constants.ts';
import type { ErrorCode } from '../core/errors.ts';
import type { HttpRequest, HttpResponse } from './uws.ts';

/** An answer that is an error, or a gateway check that failed and was answered by `onError`. */
export interface ErrorReport {
  status: number | undefined;
  code: ErrorCode;
  requestId: string;
  /** Without a query, and without the path of a gateway's client. */
  path: string | undefined;
  /** The namespace of the gateway policy that the path names. */
  policy: string | undefined;
  message: string;
}

/** Later parts of an answer do not know its request. */
type MarkedResponse = HttpResponse & { path?: string };

const GATEWAY_PATH = /^\/v1\/(?:check|auth-request)\/([^/]*)/;

export class ErrorReporter {
  readonly #send: (report: ErrorReport) => void;
  readonly #sendOmitted: (count: number) => void;
  #remaining = ERROR_REPORTS_PER_S;
  #omitted = 0;

  constructor(send: (report: ErrorReport) => void, sendOmitted: (count: number) => void) {
    this.#send = send;
    this.#sendOmitted = sendOmitted;
    setInterval(() => this.startInterval(), 1_000).unref();
  }

  /** A request begins. */
  rememberPath(res: HttpResponse, req: HttpRequest): void {
    (res as MarkedResponse).path = req.getUrl();
  }

  /** @param status undefined where a policy of a gateway decides on it */
  report(
    res: HttpResponse,
    status: number | undefined,
    code: ErrorCode,
    requestId: string,
    message: string,
  ): void {
    if (this.#remaining === 0) {
      this.#omitted++;
      return;
    }
    this.#remaining--;
    const path = (res as MarkedResponse).path?.replace(/\/{2,}/g, '/');
    const gateway = path === undefined ? null : GATEWAY_PATH.exec(path);
    const [shown, policy] = gateway ?? [path];
    const quotes = gateway === null ? -1 : message.indexOf(gateway[0]);
    const said = quotes < 0 ? message : message.slice(0, quotes) + shown;
    this.#send({ status, code, requestId, path: shown, policy, message: said });
  }

  /** Another second begins. */
  startInterval(): void {
    this.#remaining = ERROR_REPORTS_PER_S;
    if (this.#omitted > 0) this.#sendOmitted(this.#omitted);
    this.#omitted = 0;
  }
}
