/**
 * The client of the commands for a running server. The key comes from the environment, because
 * other users can read command lines. A missing response, a response that is not from weir and an
 * error response are StartErrors, each with its exit code.
 */

import { KEY_MAX_CHARACTERS } from '../core/constants.ts';
import { formatDuration } from '../core/duration.ts';
import { StartError } from '../core/errors.ts';
import { EXIT } from '../core/exit.ts';
import { nearestName } from '../core/nearest.ts';
import { parseDuration } from './options.ts';
import { quoted } from './output.ts';
import { checkAddress, type ServerAddress } from './server-address.ts';

const DEFAULT_TIMEOUT = '5s';
/** So many namespaces are read, in pages, to suggest one. */
const SUGGESTED_FROM_MAX = 2_000;
const TIMEOUT_BOUNDS = { minimumMs: 1, maximumMs: 300_000, needsUnit: true } as const;

/** The options of every command that calls a server. */
export const SERVER_OPTIONS = {
  url: {
    type: 'string',
    value: '<url>',
    help: 'the server; default: WEIR_URL, else WEIR_HOST and WEIR_PORT',
  },
  timeout: {
    type: 'string',
    value: '<duration>',
    help: `how long to wait for each response of the server; default: ${DEFAULT_TIMEOUT}`,
  },
} as const;

/** The argument or option of the command line that sets a field of a request. */
const FLAG_BY_FIELD: Readonly<Record<string, string>> = {
  identifier: '<identifier>',
  keyId: '<keyId>',
  reservationId: '<reservationId>',
  leaseId: '<leaseId>',
  limit: '--limit',
  duration: '--duration',
  algorithm: '--algorithm',
  burst: '--burst',
  cost: '--cost',
  ttl: '--ttl',
  namespace: '--namespace',
  namespaceName: '--namespace',
  namespaceId: '--namespace-id',
  name: '--name',
  permissions: '--permission',
  expires: '--expires',
};

export type RequestFields = Record<string, string | number | boolean | undefined | object>;

/** An error response of the server. */
export class ServerError extends StartError {
  readonly code: string;

  constructor(code: string, message: string) {
    super(message, EXIT.SERVER_ERROR);
    this.code = code;
  }
}

/** Replaces the field in an error message by the argument or option that set it. */
export function withFlag(message: string, location?: string): string {
  const field = location?.replace(/^body\./, '') ?? /^"([^"]+)"/.exec(message)?.[1] ?? '';
  const name = field.replace(/\[\d+\]$/, '');
  if (!Object.hasOwn(FLAG_BY_FIELD, name)) return message;
  const prefix = `"${field}"`;
  return message.startsWith(prefix)
    ? FLAG_BY_FIELD[name] + message.slice(prefix.length)
    : `${FLAG_BY_FIELD[name]}: ${message}`;
}

/** Valid header values. For any other text fetch throws an error that quotes the key. */
const KEY_PATTERN = new RegExp(`^[\\x21-\\x7e]{1,${KEY_MAX_CHARACTERS}}$`);

export class ServerClient {
  /** Without a trailing slash. */
  readonly url: string;
  readonly #address: ServerAddress;
  readonly #timeoutMs: number;
  /** Once in a process: a live view repeats its requests. */
  #namespaceHint: Promise<string> | undefined;

  constructor({ url, timeout = DEFAULT_TIMEOUT }: { url?: string; timeout?: string }) {
    this.#address = checkAddress(url);
    this.url = this.#address.url;
    this.#timeoutMs = parseDuration('timeout', timeout, TIMEOUT_BOUNDS);
  }

  /** @param signal ends the wait for the response */
  get<T>(operation: string, fields: RequestFields = {}, signal?: AbortSignal): Promise<T> {
    const query = new URLSearchParams();
    for (const [name, value] of Object.entries(fields)) {
      if (value !== undefined) query.set(name, String(value));
    }
    const init: RequestInit = { method: 'GET', ...(signal !== undefined && { signal }) };
    return this.#call(`v1/${operation}?${query}`, init, fields);
  }

  /** Undefined fields are not sent. @param signal ends the wait for the response */
  post<T>(operation: string, fields: RequestFields, signal?: AbortSignal): Promise<T> {
    return this.#post(`v1/${operation}`, fields, signal);
  }

  /** Calls an operation of v2. @returns the `data` of the response */
  async postV2<T extends object>(operation: string, fields: RequestFields): Promise<T> {
    const { data } = await this.#post<{ data?: T }>(`v2/${operation}`, fields);
    if (typeof data !== 'object' || data === null) throw this.unexpectedResponseError(200);
    return data;
  }

  /** All items of a paginated list. @param field the field of a page that holds its items */
  async *listItems(
    operation: string,
    field: string,
    fields: RequestFields = {},
  ): AsyncGenerator<object> {
    let cursor: string | undefined;
    do {
      const query = { ...fields, cursor };
      const page = await this.get<{ [field: string]: unknown; cursor?: string }>(operation, query);
      const items = page[field];
      if (!Array.isArray(items)) throw this.unexpectedResponseError(200);
      yield* items;
      cursor = page.cursor;
    } while (cursor !== undefined);
  }

  /** For a response that is not from weir. */
  unexpectedResponseError(status: number): StartError {
    const { url, source } = this.#address;
    const response = `a response with status ${status} that is not from weir`;
    return new StartError(`${url} (${source}) sent ${response}: check the URL`, EXIT.NO_ANSWER);
  }

  #post<T>(path: string, fields: RequestFields, signal?: AbortSignal): Promise<T> {
    const headers = { 'Content-Type': 'application/json' };
    const init: RequestInit = { method: 'POST', headers, body: JSON.stringify(fields) };
    return this.#call(path, { ...init, ...(signal !== undefined && { signal }) }, fields);
  }

  async #call<T>(path: string, init: RequestInit, fields: RequestFields): Promise<T> {
    const headers = {
      ...init.headers,
      Authorization: `Bearer ${requireKey(process.env.WEIR_KEY)}`,
    };
    let status: number;
    let body: string;
    try {
      const timeout = AbortSignal.timeout(this.#timeoutMs);
      const signal = init.signal ? AbortSignal.any([init.signal, timeout]) : timeout;
      const response = await fetch(`${this.url}/${path}`, { ...init, headers, signal });
      status = response.status;
      body = await response.text();
    } catch (error) {
      throw this.#noResponseError(error as Error, init.method === 'POST');
    }
    let result: unknown;
    try {
      result = JSON.parse(body);
    } catch {
      throw this.unexpectedResponseError(status);
    }
    if (typeof result !== 'object' || result === null) throw this.unexpectedResponseError(status);
    if (status === 200) return result as T;
    const error = parseError(result) ?? this.unexpectedResponseError(status);
    const name = String(fields.namespace ?? fields.namespaceName);
    if (error.message !== `there is no namespace ${JSON.stringify(name)}`) throw error;
    this.#namespaceHint ??= this.#suggestNamespace(name);
    throw new ServerError('NOT_FOUND', error.message + (await this.#namespaceHint));
  }

  /** A hint for a mistyped namespace, or an empty string, also if the key may not list them. */
  async #suggestNamespace(name: string): Promise<string> {
    const names: string[] = [];
    try {
      for await (const item of this.listItems('ratelimits.listNamespaces', 'namespaces')) {
        names.push((item as { name: string }).name);
        if (names.length === SUGGESTED_FROM_MAX) break;
      }
      // The first check of a namespace creates it, a moment after its answer.
      if (names.includes(name)) return '; it was created a moment later: repeat the command';
      const near = nearestName(name, names);
      return near === undefined ? '' : `; did you mean ${quoted(near)}?`;
    } catch {
      return '';
    }
  }

  #noResponseError(error: Error, isWrite: boolean): StartError {
    const note = isWrite ? '; the server may have executed the request' : '';
    return noResponseError(this.#address, error, this.#timeoutMs, note);
  }
}

/**
 * The sentence names the address, what has set it, and why there is no response.
 * @param error what `fetch` has thrown
 * @param note appended to the reason if the time is over
 */
export function noResponseError(
  { url, source, remedy }: ServerAddress,
  { name, message, cause }: Error,
  timeoutMs: number,
  note = '',
): StartError {
  const errorOf = (reason: string) => {
    return new StartError(`no response from ${url} (${source})${reason}`, EXIT.NO_ANSWER);
  };
  if (name === 'TimeoutError') {
    const within = ` within ${formatDuration(timeoutMs)}${note}`;
    return errorOf(`${within}; set --timeout <duration> to wait longer`);
  }
  const { message: inner, code = '' } = (cause ?? {}) as NodeJS.ErrnoException;
  const mismatch = describeProtocolMismatch(url, code, inner ?? '');
  if (mismatch !== undefined) return errorOf(`: ${mismatch}`);
  const hint = remedy === undefined ? '' : `; if the server has another address, ${remedy}`;
  return errorOf(`: ${inner || code || message}${hint}`);
}

/** @returns a sentence if the URL and the server may disagree about TLS */
function describeProtocolMismatch(url: string, code: string, message: string): string | undefined {
  if (code.startsWith('ERR_SSL') || message.includes('SSL routines')) {
    // Only a server that uses TLS sends an alert.
    const [, alert] = /([\w/ ]*alert [\w ]+):/.exec(message) ?? [];
    if (alert !== undefined) return `the TLS handshake failed: ${alert}`;
    return 'the server does not use TLS: use http:// in the URL?';
  }
  if (!url.startsWith('http:')) return undefined;
  if (code === 'UND_ERR_SOCKET') {
    return 'the server closed the connection: if it uses TLS, use https:// in the URL';
  }
  if (code.startsWith('HPE_')) {
    return 'the response is not HTTP: if the server uses TLS, use https:// in the URL';
  }
  return undefined;
}

/** No error message contains the key. */
function requireKey(key: string | undefined): string {
  if (key !== undefined && KEY_PATTERN.test(key)) return key;
  const what = `an API key, 1 to ${KEY_MAX_CHARACTERS} visible ASCII characters`;
  if (key !== undefined && key !== '') throw new StartError(`WEIR_KEY must be ${what}`);
  throw new StartError(
    `WEIR_KEY is not set: set it to ${what}; the first start of the server prints a root key`,
  );
}

interface ErrorFields {
  code?: unknown;
  message?: unknown;
  detail?: unknown;
  type?: unknown;
  errors?: { location?: string }[];
}

/** @returns undefined for a response that is not an error of weir */
function parseError(response: object): ServerError | undefined {
  const { error } = response as { error?: ErrorFields };
  if (typeof error !== 'object' || error === null) return undefined;
  // An error of v2 has no code; the URL in its type ends with it.
  const { code = /[A-Z_]+$/.exec(String(error.type))?.[0], message = error.detail } = error;
  if (typeof code !== 'string' || typeof message !== 'string') return undefined;
  const text = code === 'BAD_REQUEST' ? withFlag(message, error.errors?.[0]?.location) : message;
  return new ServerError(code, text);
}
