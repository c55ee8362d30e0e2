/** Reads cookies and bodies of the dashboard's requests. Failures are ApiErrors (400, 413, 503). */

import type { IncomingMessage } from 'node:http';
import { DASHBOARD_BODY_BYTES_MAX } from '../../core/constants.ts';
import { ApiError } from '../../core/errors.ts';

/** @returns the value of a cookie; undefined without it */
export function readCookie(req: IncomingMessage, name: string): string | undefined {
  for (const pair of (req.headers.cookie ?? '').split(';')) {
    const [key, value] = pair.trim().split('=', 2);
    if (key === name) return value;
  }
  return undefined;
}

/** Reads bodies, within a bound of the bytes of all incomplete ones. */
export class BodyBuffers {
  #bytes = 0;

  /** @throws ApiError (400, 413, 503) */
  async read(req: IncomingMessage, maxBytes: number): Promise<Uint8Array> {
    const chunks: Buffer[] = [];
    let size = 0;
    try {
      for await (const chunk of req as AsyncIterable<Buffer>) {
        size += chunk.length;
        this.#bytes += chunk.length;
        if (size > maxBytes) {
          throw new ApiError('PAYLOAD_TOO_LARGE', `the body must be at most ${maxBytes} bytes`);
        }
        if (this.#bytes > DASHBOARD_BODY_BYTES_MAX) {
          const message = 'too many request bodies are incomplete; nothing was done';
          throw new ApiError('SERVICE_UNAVAILABLE', message);
        }
        chunks.push(chunk);
      }
    } catch (error) {
      if (error instanceof ApiError) throw error;
      throw new ApiError('BAD_REQUEST', 'the body is incomplete');
    } finally {
      this.#bytes -= size;
    }
    // Not a part of a larger buffer, all of which would be copied to another thread.
    const body = new Uint8Array(size);
    let offset = 0;
    for (const chunk of chunks) {
      body.set(chunk, offset);
      offset += chunk.length;
    }
    return body;
  }
}
