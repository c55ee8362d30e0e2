/**
 * `/json` of envoyproxy/ratelimit: a request and its answer as proto3 JSON over HTTP, with the
 * status 200 if it is allowed and 429 if it is not. A fault of the request is a 400 with a
 * sentence, and counts no hits. `/healthcheck` is 200 while the service answers, and 500 while it
 * drains.
 */

import type { IncomingMessage, ServerResponse } from 'node:http';
import { RLS_MESSAGE_MAX_BYTES } from '../core/constants.ts';
import { type AnswerReceiver, CODE } from './call.ts';
import { JsonAnswerWriter } from './json-answer.ts';
import { JsonFault, readJsonRequest } from './json-request.ts';
import type { RateLimitService } from './rate-limit-service.ts';
import { GRPC_STATUS, type GrpcError } from './transport/status.ts';

const JSON_TYPE = 'application/json';
const TEXT_TYPE = 'text/plain; charset=utf-8';

/** Faults of the request; all others are of the server. */
const REQUEST_FAULTS: readonly number[] = [
  GRPC_STATUS.UNKNOWN,
  GRPC_STATUS.INVALID_ARGUMENT,
  GRPC_STATUS.PERMISSION_DENIED,
];

interface JsonHandlerOptions {
  /** Whether the server does not drain. */
  isServing(): boolean;
  /** Counts a request whose body is invalid. The service counts all others itself. */
  onFault(): void;
}

export class JsonHandler {
  readonly #service: RateLimitService;
  readonly #options: JsonHandlerOptions;
  readonly #writer = new JsonAnswerWriter();

  constructor(service: RateLimitService, options: JsonHandlerOptions) {
    this.#service = service;
    this.#options = options;
  }

  /** The listener of an HTTP server. */
  readonly handle = (req: IncomingMessage, res: ServerResponse): void => {
    const [path] = (req.url ?? '').split('?', 1);
    // Only a page in a browser sends it, which could spend the tokens of others.
    if (req.headers.origin !== undefined)
      send(res, 403, TEXT_TYPE, 'a request with the header Origin is rejected\n');
    else if (path === '/json') this.#handleJson(req, res);
    else if (path === '/healthcheck') {
      const isServing = this.#options.isServing();
      send(res, isServing ? 200 : 500, TEXT_TYPE, isServing ? 'OK' : '');
    } else
      send(res, 404, TEXT_TYPE, `there is no ${path} here: the paths are /json, /healthcheck\n`);
  };

  #handleJson(req: IncomingMessage, res: ServerResponse): void {
    const chunks: Buffer[] = [];
    let bytes = 0;
    req.on('data', (chunk: Buffer) => {
      bytes += chunk.length;
      if (bytes <= RLS_MESSAGE_MAX_BYTES) chunks.push(chunk);
      else if (!res.headersSent) {
        res.setHeader('Connection', 'close');
        const sentence = `the body must have at most ${RLS_MESSAGE_MAX_BYTES} bytes\n`;
        send(res, 413, TEXT_TYPE, sentence);
      }
    });
    req.on('error', () => res.destroy());
    res.on('error', () => {});
    req.on('end', () => {
      if (!res.headersSent) this.#answer(Buffer.concat(chunks), res);
    });
  }

  #answer(body: Buffer, res: ServerResponse): void {
    const receiver: AnswerReceiver = {
      writer: this.#writer,
      respond: (answer, code) => send(res, code === CODE.OK ? 200 : 429, JSON_TYPE, answer),
      fail: (error: GrpcError) => {
        const status = REQUEST_FAULTS.includes(error.status) ? 400 : 500;
        send(res, status, TEXT_TYPE, `${error.message}\n`);
      },
    };
    try {
      this.#service.handle(readJsonRequest(body), receiver);
    } catch (error) {
      if (!(error instanceof JsonFault)) throw error;
      this.#options.onFault();
      send(res, 400, TEXT_TYPE, `${error.message}\n`);
    }
  }
}

function send(res: ServerResponse, status: number, type: string, body: Buffer | string): void {
  if (res.destroyed) return;
  res.statusCode = status;
  res.setHeader('Content-Type', type);
  res.setHeader('Content-Length', Buffer.byteLength(body));
  res.setHeader('X-Content-Type-Options', 'nosniff');
  res.end(body);
}
