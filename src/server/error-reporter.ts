/**
 * Reports the error responses of an acceptor to the main thread, for the log at level debug: at
 * most ERROR_REPORTS_PER_S each second, and the number of omitted ones. At other log levels an
 * acceptor has no reporter, and requests cost nothing more.
 */

import { ERROR_REPORTS_PER_S } from '../core/constants.ts';
import type { ErrorCode } from '../core/errors.ts';
import type { HttpRequest, HttpResponse } from './uws.ts';

/** An error response, or a gateway check that failed and was answered by `onError`. */
interface ErrorReport {
  /** Undefined when the `onError` of a policy decides it. */
  status: number | undefined;
  code: ErrorCode;
  requestId: string;
  /** Without the query, and without the path of a gateway's client. */
  path: string | undefined;
  /** The namespace of the gateway policy that the path names. */
  policy: string | undefined;
  message: string;
}

/** The request object is not valid when a later part of a response runs. */
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

  /** Called when a request begins. */
  rememberPath(res: HttpResponse, req: HttpRequest): void {
    (res as MarkedResponse).path = req.getUrl();
  }

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
    const [shownPath, policy] = gateway ?? [path];
    // A message about the path quotes all of it, at its end.
    const pathIndex = gateway === null ? -1 : message.indexOf(gateway[0]);
    const shownMessage = pathIndex < 0 ? message : message.slice(0, pathIndex) + shownPath;
    this.#send({ status, code, requestId, path: shownPath, policy, message: shownMessage });
  }

  /** Begins another second. */
  startInterval(): void {
    this.#remaining = ERROR_REPORTS_PER_S;
    if (this.#omitted > 0) this.#sendOmitted(this.#omitted);
    this.#omitted = 0;
  }
}
