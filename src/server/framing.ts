/**
 * The framing of a request: where its body ends (RFC 9112, section 6). uWebSockets.js uses the
 * first of several Content-Length headers, skips any bytes between the chunks of a body, and reads
 * the bytes after trailers as a request. So a request with ambiguous framing gets a 400. A
 * connection closes after a chunked or unusual body, and after `Connection: close`, which
 * uWebSockets.js ignores when another request follows.
 *
 * Usual requests cost two look-ups of a header. All headers are read only if the first
 * Content-Length is 0, absent or not canonical: a second header after a canonical one goes unseen.
 * To read all headers of each check costs 1.1 to 1.2 times the CPU of a check, since each becomes
 * two strings of V8. None of the binaries rejects two Content-Length headers, 20.69 included.
 */

import { ApiError } from '../core/errors.ts';
import { fixedText, type HttpRequest } from './uws.ts';

export interface Framing {
  /** Whether bytes of a body follow the head. */
  readonly hasBody: boolean;
  /** Whether the connection closes after the response, without serving another request. */
  readonly closesConnection: boolean;
  /** The 400 response to ambiguous or invalid framing. */
  readonly error?: ApiError;
}

const BODY: Framing = { hasBody: true, closesConnection: false };
const BODY_THEN_CLOSE: Framing = { hasBody: true, closesConnection: true };
const NO_BODY: Framing = { hasBody: false, closesConnection: false };
const NO_BODY_THEN_CLOSE: Framing = { hasBody: false, closesConnection: true };

const CONTENT_LENGTH = fixedText('content-length');
const CONNECTION = fixedText('connection');

export function readFraming(req: HttpRequest): Framing {
  if (!isCanonicalLength(req.getHeader(CONTENT_LENGTH))) {
    HEADERS.reset();
    req.forEach(HEADERS.add);
    return HEADERS.toFraming();
  }
  return isConnectionClose(req.getHeader(CONNECTION)) ? BODY_THEN_CLOSE : BODY;
}

/** Collects the framing headers when all headers of a request are read. */
export class FramingHeaders {
  #contentLengthCount = 0;
  #contentLength = '';
  #transferEncodingCount = 0;
  #transferEncoding = '';
  #hasConnectionClose = false;

  reset(): void {
    this.#contentLengthCount = 0;
    this.#transferEncodingCount = 0;
    this.#hasConnectionClose = false;
  }

  /** @param name in lower case */
  readonly add = (name: string, value: string): void => {
    switch (name) {
      case 'content-length':
        this.#contentLengthCount++;
        this.#contentLength = value;
        break;
      case 'transfer-encoding':
        this.#transferEncodingCount++;
        this.#transferEncoding = value;
        break;
      case 'connection':
        this.#hasConnectionClose ||= isConnectionClose(value);
        break;
    }
  };

  toFraming(): Framing {
    if (this.#transferEncodingCount > 0) {
      const isChunked =
        this.#transferEncodingCount === 1 && this.#transferEncoding.toLowerCase() === 'chunked';
      if (isChunked && this.#contentLengthCount === 0) return BODY_THEN_CLOSE;
      return invalidFraming(
        'Transfer-Encoding',
        'must be "chunked", in one header and without Content-Length',
        this.#transferEncodingCount === 1
          ? JSON.stringify(this.#transferEncoding)
          : `${this.#transferEncodingCount} headers`,
      );
    }
    if (this.#contentLengthCount === 0)
      return this.#hasConnectionClose ? NO_BODY_THEN_CLOSE : NO_BODY;
    if (this.#contentLengthCount > 1 || !/^\d+$/.test(this.#contentLength)) {
      return invalidFraming(
        'Content-Length',
        'must be a decimal number of bytes, in one header',
        this.#contentLengthCount === 1
          ? JSON.stringify(this.#contentLength)
          : `${this.#contentLengthCount} headers`,
      );
    }
    const closes =
      this.#hasConnectionClose ||
      (this.#contentLength !== '0' && !isCanonicalLength(this.#contentLength));
    if (/^0+$/.test(this.#contentLength)) return closes ? NO_BODY_THEN_CLOSE : NO_BODY;
    return closes ? BODY_THEN_CLOSE : BODY;
  }
}

const HEADERS = new FramingHeaders();

/** Whether a Content-Length consists of decimal digits and begins with 1 to 9. */
function isCanonicalLength(length: string): boolean {
  const first = length.charCodeAt(0);
  if (!(first >= 0x31 && first <= 0x39)) return false;
  for (let at = 1; at < length.length; at++) {
    const digit = length.charCodeAt(at);
    if (digit < 0x30 || digit > 0x39) return false;
  }
  return true;
}

function isConnectionClose(connection: string): boolean {
  if (connection === '' || connection === 'keep-alive') return false;
  return connection.split(',').some((option) => option.trim().toLowerCase() === 'close');
}

function invalidFraming(header: string, accepted: string, received: string): Framing {
  const message = `the header ${header} ${accepted}; got ${received}`;
  return { hasBody: false, closesConnection: true, error: new ApiError('BAD_REQUEST', message) };
}
