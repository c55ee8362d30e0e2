/** HTTP as bytes, for what `fetch` would not send, and checks in one line. */

import { connect, type Socket } from 'node:net';
import { DURATION_MAX_MS } from '../../src/core/constants.ts';
import { ROOT_KEY } from './server.ts';

/** The longest window: it ends in 2070, and not between two lines of a test. */
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

export interface RequestParts {
  method?: string;
  path?: string;
  headers?: Record<string, string>;
  body?: string | Uint8Array;
}

/** A request with a key and a JSON body, as bytes. A header given as '' is left out. */
export function requestBytes(parts: RequestParts): Buffer {
  const body = Buffer.from((parts.body ?? '') as string);
  const headers: Record<string, string> = {
    Host: '127.0.0.1',
    Authorization: `Bearer ${ROOT_KEY}`,
    'Content-Type': 'application/json',
    'Content-Length': String(body.length),
    ...parts.headers,
  };
  const lines = Object.entries(headers)
    .filter(([, value]) => value !== '')
    .map(([name, value]) => `${name}: ${value}\r\n`);
  const head = `${parts.method ?? 'POST'} ${parts.path ?? '/v1/ratelimits.limit'} HTTP/1.1\r\n`;
  return Buffer.concat([Buffer.from(`${head}${lines.join('')}\r\n`), body]);
}

/**
 * Takes whole answers from the front of what has arrived.
 * @param methods of the requests, for HEAD: its answers have a length, and no body
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
 * Sends pieces on one connection, each in a packet of its own, and waits for so many answers.
 * @param target a port, or a connection that begins
 * @param isSequential each piece is a request, and goes out when the one before is answered
 * @param methods of the requests, where one of them is HEAD
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
    socket.setTimeout(20_000, () => finish(new Error('no answer within 20 s')));
    let received = '';
    const answers: ParsedResponse[] = [];
    const finish = (error?: Error) => {
      socket.destroy();
      if (error) reject(error);
      else resolve(answers);
    };
    socket.on('error', finish);
    socket.on('close', () =>
      finish(new Error(`closed after ${answers.length} answers: ${received}`)),
    );
    // Characters are bytes, until an answer is whole.
    socket.setEncoding('latin1');
    socket.on('data', (data) => {
      const taken = parseResponses(received + data, methods.slice(answers.length));
      received = taken.rest;
      answers.push(...taken.answers);
      if (answers.length >= responseCount) finish();
      else if (isSequential) socket.write(packets[answers.length]);
    });
    const send = async () => {
      for (const piece of isSequential ? packets.slice(0, 1) : packets) {
        await new Promise<void>((sent) => socket.write(piece, () => sent()));
        if (packets.length > 1) await new Promise((next) => setImmediate(next));
      }
    };
    socket.on('connect', () => void send());
  });
}

export async function sendRequest(port: number, parts: RequestParts): Promise<ParsedResponse> {
  const methods = [parts.method ?? 'POST'];
  const [answer] = await exchange(port, [requestBytes(parts)], 1, false, methods);
  return answer;
}

/** One check; fails unless it was answered with a 200. */
export async function sendCheck(port: number, body: object): Promise<LimitResponse> {
  const answer = await sendRequest(port, { body: JSON.stringify(body) });
  if (answer.status !== 200) throw new Error(`${answer.status} ${answer.body}`);
  return JSON.parse(answer.body);
}

export interface ErrorBody {
  code: string;
  docs: string;
  message: string;
  requestId: string;
}

export function errorIn(answer: ParsedResponse): ErrorBody {
  return JSON.parse(answer.body).error;
}

/** Everything at /metrics, by name and labels. */
export async function readMetrics(adminUrl: string): Promise<Map<string, number>> {
  const text = await (await fetch(`${adminUrl}/metrics`)).text();
  const lines = text.split('\n').filter((line) => line !== '' && !line.startsWith('#'));
  return new Map(
    lines.map((line) => {
      const space = line.lastIndexOf(' ');
      return [line.slice(0, space), Number(line.slice(space + 1))];
    }),
  );
}

/** One figure at /metrics; fails when there is none of that name. */
export async function readMetric(adminUrl: string, name: string): Promise<number> {
  const value = (await readMetrics(adminUrl)).get(name);
  if (value === undefined) throw new Error(`there is no metric ${name}`);
  return value;
}
