/**
 * The running server, as the commands call it. The key comes from the environment, so that it is on
 * no command line. No answer, one that is not from weir, and an error are StartErrors, each with
 * its exit code.
 */

import { KEY_MAX_CHARACTERS } from '../core/constants.ts';
import { formatValue } from '../core/describe.ts';
import { StartError } from '../core/errors.ts';
import { EXIT } from '../core/exit.ts';
import { formatDuration, parseDuration } from './options.ts';

const DEFAULT_URL = 'http://127.0.0.1:7070';
const DEFAULT_TIMEOUT = '5s';
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
    help: `how long to wait for each answer of the server; default: ${DEFAULT_TIMEOUT}`,
  },
} as const;

/** How the command line calls a field in which the server may find a fault. */
const FLAG_BY_FIELD: Readonly<Record<string, string>> = {
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

type RequestFields = Record<string, string | number | boolean | undefined | object>;

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
  if (!Object.hasOwn(FLAG_BY_FIELD, name)) return message;
  const begin = `"${field}"`;
  return message.startsWith(begin)
    ? FLAG_BY_FIELD[name] + message.slice(begin.length)
    : `${FLAG_BY_FIELD[name]}: ${message}`;
}

/** What a header may hold. Another text would be repeated by whatever refuses it. */
const KEY_PATTERN = new RegExp(`^[\\x21-\\x7e]{1,${KEY_MAX_CHARACTERS}}$`);

export class ServerClient {
  /** Without a slash at its end. */
  readonly url: string;
  readonly #urlSource: string;
  readonly #timeoutMs: number;

  constructor({ url, timeout = DEFAULT_TIMEOUT }: { url?: string; timeout?: string }) {
    this.#urlSource = url === undefined ? 'WEIR_URL' : '--url';
    this.url = parseUrl(this.#urlSource, url ?? process.env.WEIR_URL ?? DEFAULT_URL);
    this.#timeoutMs = parseDuration('timeout', timeout, TIMEOUT_BOUNDS);
  }

  get<T>(operation: string, fields: RequestFields = {}): Promise<T> {
    const query = new URLSearchParams();
    for (const [name, value] of Object.entries(fields)) {
      if (value !== undefined) query.set(name, String(value));
    }
    return this.#call(`v1/${operation}?${query}`, { method: 'GET' });
  }

  /** A field that is undefined is left out. */
  post<T>(operation: string, fields: RequestFields): Promise<T> {
    return this.#post(`v1/${operation}`, fields);
  }

  /** The same of v2. @returns the data of the answer */
  async postV2<T extends object>(operation: string, fields: RequestFields): Promise<T> {
    const { data } = await this.#post<{ data?: T }>(`v2/${operation}`, fields);
    if (typeof data !== 'object' || data === null) throw this.unexpectedResponseError(200);
    return data;
  }

  /** All items of a list in pages. @param field where a page has them */
  async *listItems(
    operation: string,
    field: string,
    fields: RequestFields = {},
  ): AsyncGenerator<object> {
    let cursor: string | undefined;
    do {
      const asked = { ...fields, cursor };
      const page = await this.get<{ [field: string]: unknown; cursor?: string }>(operation, asked);
      const found = page[field];
      if (!Array.isArray(found)) throw this.unexpectedResponseError(200);
      yield* found;
      cursor = page.cursor;
    } while (cursor !== undefined);
  }

  /** For an answer that is not from weir. */
  unexpectedResponseError(status: number): StartError {
    return new StartError(
      `${this.url} (${this.#urlSource}) answered ${status}, but not as weir does: ` +
        `is another server` +
        ' there?',
      EXIT.NO_ANSWER,
    );
  }

  #post<T>(path: string, fields: RequestFields): Promise<T> {
    const headers = { 'Content-Type': 'application/json' };
    return this.#call(path, { method: 'POST', headers, body: JSON.stringify(fields) });
  }

  async #call<T>(path: string, init: RequestInit): Promise<T> {
    const headers = {
      ...init.headers,
      Authorization: `Bearer ${requireKey(process.env.WEIR_KEY)}`,
    };
    let status: number;
    let body: string;
    try {
      const signal = AbortSignal.timeout(this.#timeoutMs);
      const response = await fetch(`${this.url}/${path}`, { ...init, headers, signal });
      status = response.status;
      body = await response.text();
    } catch (error) {
      throw this.#noResponseError(error as Error, init.method === 'POST');
    }
    let answer: unknown;
    try {
      answer = JSON.parse(body);
    } catch {
      throw this.unexpectedResponseError(status);
    }
    if (typeof answer !== 'object' || answer === null) throw this.unexpectedResponseError(status);
    if (status === 200) return answer as T;
    throw parseError(answer) ?? this.unexpectedResponseError(status);
  }

  #noResponseError({ name, message, cause }: Error, isWrite: boolean): StartError {
    const from = `no answer from ${this.url} (${this.#urlSource})`;
    if (name === 'TimeoutError') {
      const done = isWrite ? '; the request may have been carried out' : '';
      return new StartError(
        `${from} within ${formatDuration(this.#timeoutMs)}${done}; ` +
          '--timeout <duration> waits longer',
        EXIT.NO_ANSWER,
      );
    }
    const { message: inner, code = '' } = (cause ?? {}) as NodeJS.ErrnoException;
    const why = describeProtocolMismatch(this.url, code, inner ?? '') ?? (inner || code || message);
    return new StartError(`${from}: ${why}`, EXIT.NO_ANSWER);
  }
}

/** @returns a sentence where the server and the URL may disagree about TLS */
function describeProtocolMismatch(url: string, code: string, message: string): string | undefined {
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
function parseUrl(source: string, text: string): string {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  if (url !== undefined && (url.username !== '' || url.password !== '')) {
    throw new StartError(`${source} must have no user name and no password; WEIR_KEY has the key`);
  }
  const isUsable = ['http:', 'https:'].includes(url?.protocol ?? '') && !/[?#]/.test(text);
  if (isUsable) return text.trim().replace(/\/+$/, '');
  throw new StartError(`${source} must be a URL such as ${DEFAULT_URL}; got ${formatValue(text)}`);
}

/** The key itself is in no message. */
function requireKey(key: string | undefined): string {
  if (key !== undefined && KEY_PATTERN.test(key)) return key;
  const what = `an API key, 1 to ${KEY_MAX_CHARACTERS} visible ASCII characters`;
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
function parseError(response: object): ServerError | undefined {
  const { error } = response as { error?: ErrorFields };
  if (typeof error !== 'object' || error === null) return undefined;
  // v2 has no code: its type is the page of the code.
  const { code = /[A-Z_]+$/.exec(String(error.type))?.[0], message = error.detail } = error;
  if (typeof code !== 'string' || typeof message !== 'string') return undefined;
  const isField = code === 'BAD_REQUEST';
  return new ServerError(code, isField ? withFlag(message, error.errors?.[0]?.location) : message);
}
