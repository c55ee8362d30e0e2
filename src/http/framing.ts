/**
 * How a request says where its body ends (RFC 9112, section 6), read before anything is decided.
 * uWebSockets.js takes the first of several Content-Length lines, skips whatever stands between the
 * chunks of a body, and reads on behind trailers as if a request began there. So a request whose
 * framing is ambiguous is answered 400, and a connection serves no request behind a chunked or
 * unusual body, nor behind `Connection: close`, which uWebSockets.js forgets when more follows.
 *
 * Ordinary requests cost two look-ups. All headers are read only where the first Content-Length is
 * 0, missing or not canonical: a second line behind a canonical one is not seen.
 */

import { ApiError } from '../errors.ts';
import { fixedText, type HttpRequest } from './uws.ts';

export interface Framing {
  /** Whether bytes of a body follow the head. */
  readonly hasBody: boolean;
  /** Whether the connection is closed behind the answer, and nothing that follows is served. */
  readonly closes: boolean;
  /** Why the request is answered 400, where its framing is ambiguous or invalid. */
  readonly fault?: ApiError;
}

const BODY: Framing = { hasBody: true, closes: false };
const LAST_BODY: Framing = { hasBody: true, closes: true };
const NO_BODY: Framing = { hasBody: false, closes: false };
const LAST_NO_BODY: Framing = { hasBody: false, closes: true };

const CONTENT_LENGTH = fixedText('content-length');
const CONNECTION = fixedText('connection');

export function framingOf(req: HttpRequest): Framing {
  if (!isCanonical(req.getHeader(CONTENT_LENGTH))) {
    HEADERS.begin();
    req.forEach(HEADERS.add);
    return HEADERS.framing();
  }
  return endsConnection(req.getHeader(CONNECTION)) ? LAST_BODY : BODY;
}

/** The headers about framing, where all headers of a request are read. */
export class FramingHeaders {
  #lengths = 0;
  #length = '';
  #encodings = 0;
  #encoding = '';
  #endsConnection = false;

  begin(): void {
    this.#lengths = 0;
    this.#encodings = 0;
    this.#endsConnection = false;
  }

  /** @param name in lower case */
  readonly add = (name: string, value: string): void => {
    switch (name) {
      case 'content-length':
        this.#lengths++;
        this.#length = value;
        break;
      case 'transfer-encoding':
        this.#encodings++;
        this.#encoding = value;
        break;
      case 'connection':
        this.#endsConnection ||= endsConnection(value);
        break;
    }
  };

  framing(): Framing {
    if (this.#encodings > 0) {
      const isChunked = this.#encodings === 1 && this.#encoding.toLowerCase() === 'chunked';
      if (isChunked && this.#lengths === 0) return LAST_BODY;
      return invalid(
        'Transfer-Encoding',
        'must be "chunked", in one line and without Content-Length',
        this.#encodings === 1 ? JSON.stringify(this.#encoding) : `${this.#encodings} lines`,
      );
    }
    if (this.#lengths === 0) return this.#endsConnection ? LAST_NO_BODY : NO_BODY;
    if (this.#lengths > 1 || !/^\d+$/.test(this.#length)) {
      return invalid(
        'Content-Length',
        'must be a decimal number of bytes, in one line',
        this.#lengths === 1 ? JSON.stringify(this.#length) : `${this.#lengths} lines`,
      );
    }
    const closes = this.#endsConnection || (this.#length !== '0' && !isCanonical(this.#length));
    if (/^0+$/.test(this.#length)) return closes ? LAST_NO_BODY : NO_BODY;
    return closes ? LAST_BODY : BODY;
  }
}

const HEADERS = new FramingHeaders();

/** Whether a Content-Length is decimal digits that begin with 1 to 9. */
function isCanonical(length: string): boolean {
  const first = length.charCodeAt(0);
  if (!(first >= 0x31 && first <= 0x39)) return false;
  for (let at = 1; at < length.length; at++) {
    const digit = length.charCodeAt(at);
    if (digit < 0x30 || digit > 0x39) return false;
  }
  return true;
}

function endsConnection(connection: string): boolean {
  if (connection === '' || connection === 'keep-alive') return false;
  return connection.split(',').some((option) => option.trim().toLowerCase() === 'close');
}

function invalid(header: string, accepted: string, received: string): Framing {
  const message = `the header ${header} ${accepted}; got ${received}`;
  return { hasBody: false, closes: true, fault: new ApiError('BAD_REQUEST', message) };
}
