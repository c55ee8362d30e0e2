/** Requests and responses as bytes, for what `fetch` cannot send, and one-line checks. */

import { type AddressInfo, connect, type Server, type Socket } from 'node:net';
import { DURATION_MAX_MS } from '../../src/core/constants.ts';
import { ROOT_KEY, waitUntil } from './server.ts';

/** The longest duration. Such a window does not end while a test runs: it ends in 2070. */
export const LONGEST_WINDOW_MS = DURATION_MAX_MS;

export interface ParsedResponse {
  status: number;
  headers: Record<string, string>;
  body: string;
}

export interface LimitResponse {
  success: boolean;
  limit: number;
  remaining: number;
  reset: number;
}

/** An array has several headers of one name. */
export type RequestHeaders = Record<string, string | string[]>;

export interface RequestParts {
  method?: string;
  path?: string;
  headers?: RequestHeaders;
  body?: string | Uint8Array;
}

/** A request with a key and a JSON body, as bytes. A header with the value '' is omitted. */
export function requestBytes(parts: RequestParts): Buffer {
  const body = Buffer.from((parts.body ?? '') as string);
  const headers: RequestHeaders = {
    Host: '127.0.0.1',
    Authorization: `Bearer ${ROOT_KEY}`,
    'Content-Type': 'application/json',
    'Content-Length': String(body.length),
    ...parts.headers,
  };
  const lines = Object.entries(headers)
    .filter(([, value]) => value !== '')
    .flatMap(([name, value]) => [value].flat().map((line) => `${name}: ${line}\r\n`));
  const head = `${parts.method ?? 'POST'} ${parts.path ?? '/v1/ratelimits.limit'} HTTP/1.1\r\n`;
  return Buffer.concat([Buffer.from(`${head}${lines.join('')}\r\n`), body]);
}

/**
 * Parses the complete responses at the start of the received text.
 * @param methods of the requests; a response to HEAD has a content-length, but no body
 */
export function parseResponses(
  received: string,
  methods: readonly string[] = [],
): { answers: ParsedResponse[]; rest: string } {
  const answers: ParsedResponse[] = [];
  let rest = received;
  for (;;) {
    const end = rest.indexOf('\r\n\r\n');
    if (end < 0) break;
    const [line, ...fields] = rest.slice(0, end).split('\r\n');
    const headers = Object.fromEntries(
      fields.map((field) => {
        const colon = field.indexOf(':');
        return [field.slice(0, colon).toLowerCase(), field.slice(colon + 1).trim()];
      }),
    );
    const isHead = methods[answers.length] === 'HEAD';
    const length = isHead ? 0 : Number(headers['content-length'] ?? 0);
    const body = rest.slice(end + 4, end + 4 + length);
    if (body.length < length) break;
    const text = Buffer.from(body, 'latin1').toString();
    answers.push({ status: Number(line.split(' ')[1]), headers, body: text });
    rest = rest.slice(end + 4 + length);
  }
  return { answers, rest };
}

/**
 * Sends packets on one connection, and waits for a number of responses.
 * @param target a port, or a connection that is being established
 * @param isSequential each packet is a request, sent after the response to the one before
 * @param methods of the requests; required if one of them is HEAD
 */
export function exchange(
  target: number | Socket,
  packets: Uint8Array[],
  responseCount = 1,
  isSequential = false,
  methods: readonly string[] = [],
): Promise<ParsedResponse[]> {
  return new Promise((resolve, reject) => {
    const socket = typeof target === 'number' ? connect(target, '127.0.0.1') : target;
    socket.setNoDelay(true);
    socket.setTimeout(20_000, () => finish(new Error('no response within 20 s')));
    let received = '';
    const answers: ParsedResponse[] = [];
    const finish = (error?: Error) => {
      socket.destroy();
      if (error) reject(error);
      else resolve(answers);
    };
    socket.on('error', finish);
    socket.on('close', () =>
      finish(new Error(`closed after ${answers.length} responses: ${received}`)),
    );
    // One character is one byte until a response is complete.
    socket.setEncoding('latin1');
    socket.on('data', (data) => {
      const parsed = parseResponses(received + data, methods.slice(answers.length));
      received = parsed.rest;
      answers.push(...parsed.answers);
      if (answers.length >= responseCount) finish();
      else if (isSequential) socket.write(packets[answers.length]);
    });
    const send = async () => {
      for (const packet of isSequential ? packets.slice(0, 1) : packets) {
        await new Promise<void>((sent) => socket.write(packet, () => sent()));
        if (packets.length > 1) await new Promise((next) => setImmediate(next));
      }
    };
    socket.on('connect', () => void send());
  });
}

/**
 * Sends a request again after each response, until one closes the connection. When a server drains,
 * the acceptor that listens is the first: another one may keep its connections until then.
 * @param request which the caller sends first
 * @returns reads the responses so far
 */
export function repeatUntilClosed(socket: Socket, request: Uint8Array) {
  let received = '';
  // One character is one byte.
  socket.setEncoding('latin1').on('data', (data) => {
    received += data;
    const { answers, rest } = parseResponses(received);
    if (rest === '' && answers.at(-1)?.headers.connection !== 'close') socket.write(request);
  });
  return () => parseResponses(received);
}

/** The body of a check in the longest window. */
export function checkBody(identifier: string, limit = 1_000): string {
  return JSON.stringify({ identifier, limit, duration: LONGEST_WINDOW_MS });
}

/** The remaining tokens in the response to a check of v1. */
export function remainingIn({ body }: ParsedResponse): number {
  return (JSON.parse(body) as LimitResponse).remaining;
}

export async function sendRequest(port: number, parts: RequestParts): Promise<ParsedResponse> {
  const methods = [parts.method ?? 'POST'];
  const [answer] = await exchange(port, [requestBytes(parts)], 1, false, methods);
  return answer;
}

/** Sends one check. Rejects unless the status is 200. */
export async function sendCheck(
  port: number,
  body: object,
  headers: Record<string, string> = {},
): Promise<LimitResponse> {
  const answer = await sendRequest(port, { body: JSON.stringify(body), headers });
  if (answer.status !== 200) throw new Error(`${answer.status} ${answer.body}`);
  return JSON.parse(answer.body);
}

/** Makes a server of a test listen on a free port, which it returns. */
export async function listen(server: Server): Promise<number> {
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return (server.address() as AddressInfo).port;
}

interface ErrorBody {
  code: string;
  docs: string;
  message: string;
  requestId: string;
}

export function errorIn(answer: ParsedResponse): ErrorBody {
  return JSON.parse(answer.body).error;
}

/** The metrics in the text of a scrape, by name with labels. */
export function parseMetrics(text: string): Map<string, number> {
  const lines = text.split('\n').filter((line) => line !== '' && !line.startsWith('#'));
  return new Map(
    lines.map((line) => {
      const space = line.lastIndexOf(' ');
      return [line.slice(0, space), Number(line.slice(space + 1))];
    }),
  );
}

/** All metrics, by name with labels. */
export async function readMetrics(adminUrl: string): Promise<Map<string, number>> {
  return parseMetrics(await (await fetch(`${adminUrl}/metrics`)).text());
}

/** One metric. Rejects when it does not exist. */
export async function readMetric(adminUrl: string, name: string): Promise<number> {
  const value = (await readMetrics(adminUrl)).get(name);
  if (value === undefined) throw new Error(`the metric ${name} does not exist`);
  return value;
}

/** Waits until all decisions that were answered before are in checkpoints. */
export async function waitForCheckpoint(adminUrl: string): Promise<void> {
  // `Date.now` rounds down: the last decision may be up to a millisecond later than it says.
  const answeredMs = Date.now() + 1;
  await waitUntil('the decisions are in files', async () => {
    const beforeMs = Date.now();
    const ageS = (await readMetrics(adminUrl)).get('weir_checkpoint_age_seconds');
    return ageS !== undefined && beforeMs - 1_000 * ageS >= answeredMs;
  });
}
