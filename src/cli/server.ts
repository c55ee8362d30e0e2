/**
 * The running server, as the commands call it. The key comes from the environment, so that it is on
 * no command line. No answer, one that is not from weir, and an error are StartErrors, each with
 * its exit code.
 */

import { describe } from '../describe.ts';
import { StartError } from '../errors.ts';
import { EXIT } from '../exit.ts';
import { KEY_TEXT_MAX } from '../limits.ts';
import { durationOf, durationText } from './options.ts';

const DEFAULT_URL = 'http://127.0.0.1:7070';
const TIMEOUT = '5s';
const TIMEOUT_BOUNDS = { minimumMs: 1, maximumMs: 300_000, needsUnit: true } as const;

/** The options of every command that talks to a server. */
export const SERVER_OPTIONS = {
  url: {
    type: 'string',
    value: '<url>',
    help: `the server; default: WEIR_URL, else ${DEFAULT_URL}`,
  },
  timeout: {
    type: 'string',
    value: '<duration>',
    help: `how long to wait for each answer of the server; default: ${TIMEOUT}`,
  },
} as const;

/** How the command line calls a field in which the server may find a fault. */
const FLAGS: Readonly<Record<string, string>> = {
  identifier: '<identifier>',
  keyId: '<keyId>',
  limit: '--limit',
  duration: '--duration',
  cost: '--cost',
  namespace: '--namespace',
  namespaceName: '--namespace',
  namespaceId: '--namespace-id',
  name: '--name',
  permissions: '--permission',
  expires: '--expires',
};

type Fields = Record<string, string | number | boolean | undefined | object>;

/** An error that the server answered. */
export class ServerError extends StartError {
  readonly code: string;

  constructor(code: string, message: string) {
    super(message, EXIT.SERVER_ERROR);
    this.code = code;
  }
}

/** A message about a field names the flag that the user has typed. */
export function withFlag(message: string, location?: string): string {
  const field = location?.replace(/^body\./, '') ?? /^"([^"]+)"/.exec(message)?.[1] ?? '';
  const name = field.replace(/\[\d+\]$/, '');
  if (!Object.hasOwn(FLAGS, name)) return message;
  const begin = `"${field}"`;
  return message.startsWith(begin)
    ? FLAGS[name] + message.slice(begin.length)
    : `${FLAGS[name]}: ${message}`;
}

/** What a header may hold. Another text would be repeated by whatever refuses it. */
const KEY = new RegExp(`^[\\x21-\\x7e]{1,${KEY_TEXT_MAX}}$`);

export class Server {
  /** Without a slash at its end. */
  readonly url: string;
  readonly #from: string;
  readonly #timeoutMs: number;

  constructor({ url, timeout = TIMEOUT }: { url?: string; timeout?: string }) {
    this.#from = url === undefined ? 'WEIR_URL' : '--url';
    this.url = urlOf(this.#from, url ?? process.env.WEIR_URL ?? DEFAULT_URL);
    this.#timeoutMs = durationOf('timeout', timeout, TIMEOUT_BOUNDS);
  }

  get<T>(operation: string, fields: Fields = {}): Promise<T> {
    const query = new URLSearchParams();
    for (const [name, value] of Object.entries(fields)) {
      if (value !== undefined) query.set(name, String(value));
    }
    return this.#call(`v1/${operation}?${query}`, { method: 'GET' });
  }

  /** A field that is undefined is left out. */
  post<T>(operation: string, fields: Fields): Promise<T> {
    return this.#post(`v1/${operation}`, fields);
  }

  /** The same of v2. @returns the data of the answer */
  async postV2<T extends object>(operation: string, fields: Fields): Promise<T> {
    const { data } = await this.#post<{ data?: T }>(`v2/${operation}`, fields);
    if (typeof data !== 'object' || data === null) throw this.notWeir(200);
    return data;
  }

  /** All items of a list in pages. @param field where a page has them */
  async *items(operation: string, field: string, fields: Fields = {}): AsyncGenerator<object> {
    let cursor: string | undefined;
    do {
      const asked = { ...fields, cursor };
      const page = await this.get<{ [field: string]: unknown; cursor?: string }>(operation, asked);
      const found = page[field];
      if (!Array.isArray(found)) throw this.notWeir(200);
      yield* found;
      cursor = page.cursor;
    } while (cursor !== undefined);
  }

  /** For an answer that is not from weir. */
  notWeir(status: number): StartError {
    return new StartError(
      `${this.url} (${this.#from}) answered ${status}, but not as weir does: is another server` +
        ' there?',
      EXIT.NO_ANSWER,
    );
  }

  #post<T>(path: string, fields: Fields): Promise<T> {
    const headers = { 'Content-Type': 'application/json' };
    return this.#call(path, { method: 'POST', headers, body: JSON.stringify(fields) });
  }

  async #call<T>(path: string, init: RequestInit): Promise<T> {
    const headers = { ...init.headers, Authorization: `Bearer ${keyOf(process.env.WEIR_KEY)}` };
    let status: number;
    let body: string;
    try {
      const signal = AbortSignal.timeout(this.#timeoutMs);
      const response = await fetch(`${this.url}/${path}`, { ...init, headers, signal });
      status = response.status;
      body = await response.text();
    } catch (error) {
      throw this.#noAnswer(error as Error, init.method === 'POST');
    }
    let answer: unknown;
    try {
      answer = JSON.parse(body);
    } catch {
      throw this.notWeir(status);
    }
    if (typeof answer !== 'object' || answer === null) throw this.notWeir(status);
    if (status === 200) return answer as T;
    throw errorOf(answer) ?? this.notWeir(status);
  }

  #noAnswer({ name, message, cause }: Error, changes: boolean): StartError {
    const from = `no answer from ${this.url} (${this.#from})`;
    if (name === 'TimeoutError') {
      const done = changes ? '; the request may have been carried out' : '';
      return new StartError(
        `${from} within ${durationText(this.#timeoutMs)}${done}; --timeout <duration> waits longer`,
        EXIT.NO_ANSWER,
      );
    }
    const { message: inner, code = '' } = (cause ?? {}) as NodeJS.ErrnoException;
    const why = protocolFault(this.url, code, inner ?? '') ?? (inner || code || message);
    return new StartError(`${from}: ${why}`, EXIT.NO_ANSWER);
  }
}

/** @returns a sentence where the server and the URL may disagree about TLS */
function protocolFault(url: string, code: string, message: string): string | undefined {
  if (code.startsWith('ERR_SSL') || message.includes('SSL routines')) {
    // An alert is an answer in TLS.
    const [, alert] = /([\w/ ]*alert [\w ]+):/.exec(message) ?? [];
    if (alert !== undefined) return `the TLS handshake failed: ${alert}`;
    return 'the server does not speak TLS: use http:// in the URL?';
  }
  if (!url.startsWith('http:')) return undefined;
  if (code === 'UND_ERR_SOCKET') {
    return 'the server closed the connection: if it speaks TLS, use https:// in the URL';
  }
  if (code.startsWith('HPE_')) {
    return 'the server does not speak HTTP: if it speaks TLS, use https:// in the URL';
  }
  return undefined;
}

/** @throws StartError for a text that is no address of a server; it may hold a password */
function urlOf(from: string, text: string): string {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  if (url !== undefined && (url.username !== '' || url.password !== '')) {
    throw new StartError(`${from} must have no user name and no password; WEIR_KEY has the key`);
  }
  const isUsable = ['http:', 'https:'].includes(url?.protocol ?? '') && !/[?#]/.test(text);
  if (isUsable) return text.trim().replace(/\/+$/, '');
  throw new StartError(`${from} must be a URL such as ${DEFAULT_URL}; got ${describe(text)}`);
}

/** The key itself is in no message. */
function keyOf(key: string | undefined): string {
  if (key !== undefined && KEY.test(key)) return key;
  const what = `an API key, 1 to ${KEY_TEXT_MAX} visible ASCII characters`;
  if (key !== undefined && key !== '') throw new StartError(`WEIR_KEY must be ${what}`);
  throw new StartError(
    `WEIR_KEY is not set: it must be ${what}, such as the root key that the first start of the` +
      ' server printed',
  );
}

interface ErrorFields {
  code?: unknown;
  message?: unknown;
  detail?: unknown;
  type?: unknown;
  errors?: { location?: string }[];
}

/** @returns undefined for an answer that is not an error of weir */
function errorOf(answer: object): ServerError | undefined {
  const { error } = answer as { error?: ErrorFields };
  if (typeof error !== 'object' || error === null) return undefined;
  // v2 has no code: its type is the page of the code.
  const { code = /[A-Z_]+$/.exec(String(error.type))?.[0], message = error.detail } = error;
  if (typeof code !== 'string' || typeof message !== 'string') return undefined;
  const isField = code === 'BAD_REQUEST';
  return new ServerError(code, isField ? withFlag(message, error.errors?.[0]?.location) : message);
}
