/**
 * Calls operations of weir's API with `fetch`. A call rejects with an Error if weir does not answer
 * in time, or answers with anything but the result of the operation.
 */

import { Breaker } from './breaker.ts';
import { startDeadline } from './deadline.ts';
import { readKey, readTimeout, requireOption, shownUrl } from './options.ts';

/** How long to wait before the second and the third try of an operation that may be repeated. */
const RETRY_DELAYS_MS = [100, 1_000];

/** No response has arrived, so weir may have done what the call asks, or not. */
class NoAnswer extends Error {}

export class WeirClient {
  readonly #url: string;
  readonly #headers: Record<string, string>;
  readonly #timeoutMs: number;
  readonly #breaker = new Breaker();

  /** @throws TypeError for invalid options */
  constructor(options: { url: unknown; key: unknown; timeoutMs?: unknown }) {
    this.#url = readBaseUrl(options.url);
    this.#headers = {
      Authorization: `Bearer ${readKey(options.key)}`,
      'Content-Type': 'application/json',
    };
    this.#timeoutMs = readTimeout(options.timeoutMs);
  }

  /**
   * Sends the call once. A failure is a process warning too.
   * @param read returns undefined if the body is not the result of the operation
   * @throws Error without a result
   */
  async call<T>(
    operation: string,
    fields: object,
    read: (body: unknown) => T | undefined,
  ): Promise<T> {
    if (this.#breaker.isOpen && !this.#breaker.takeProbe()) {
      throw new NoAnswer('weir has not answered the last checks');
    }
    try {
      const { status, text } = await this.#send(operation, JSON.stringify(fields));
      const result = status === 200 ? read(JSON.parse(text)) : undefined;
      if (result !== undefined) return result;
      throw new Error(`weir answered ${status}: ${text.slice(0, 300)}`);
    } catch (error) {
      process.emitWarning((error as Error).message);
      throw error;
    }
  }

  /** Sends the call again while no response arrives: weir does such an operation once only. */
  async callRepeatedly<T>(
    operation: string,
    fields: object,
    read: (body: unknown) => T | undefined,
  ): Promise<T> {
    for (const delayMs of RETRY_DELAYS_MS) {
      try {
        return await this.call(operation, fields, read);
      } catch (error) {
        if (!(error instanceof NoAnswer)) throw error;
      }
      await new Promise((resolve) => setTimeout(resolve, delayMs));
    }
    return this.call(operation, fields, read);
  }

  async #send(operation: string, body: string): Promise<{ status: number; text: string }> {
    const abort = new AbortController();
    const cancelDeadline = startDeadline(this.#timeoutMs, () => {
      this.#breaker.countTimeout();
      abort.abort(new Error(`weir has not answered within ${this.#timeoutMs} ms`));
    });
    try {
      const headers = this.#headers;
      const init = {
        method: 'POST',
        headers,
        body,
        signal: abort.signal,
        redirect: 'error',
      } as const;
      const response = await fetch(`${this.#url}/${operation}`, init);
      this.#breaker.countResponse();
      return { status: response.status, text: await response.text() };
    } catch (error) {
      throw new NoAnswer(causeOf(error));
    } finally {
      cancelDeadline();
    }
  }
}

/** @returns the URL without a slash at its end */
function readBaseUrl(value: unknown): string {
  const url = URL.canParse(String(value)) ? new URL(String(value)) : undefined;
  const isHttp = url !== undefined && /^https?:$/.test(url.protocol);
  const isBase = isHttp && url.href === `${url.origin}${url.pathname}`;
  requireOption(isBase, 'url', 'a URL such as http://127.0.0.1:7070', shownUrl(value));
  return url!.href.replace(/\/+$/, '');
}

/** `fetch` hides the cause of a failure, such as ECONNREFUSED. */
function causeOf(error: unknown): string {
  const { cause, message } = error as Error;
  return cause instanceof Error ? `weir has not answered: ${cause.message}` : message;
}
