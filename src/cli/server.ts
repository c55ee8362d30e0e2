/**
 * The running server, as the command line calls it. Where it is and the key come from the
 * environment, so that the key is on no command line. What goes wrong is a StartError that says so.
 */

import { describe } from '../describe.ts';
import { StartError } from '../errors.ts';
import { KEY_TEXT_MAX } from '../limits.ts';

const DEFAULT_URL = 'http://127.0.0.1:7070';
/** The largest import takes a second. */
const TIMEOUT_MS = 30_000;

type Fields = Record<string, string | number | boolean | undefined | object>;

export function get<T>(operation: string, fields: Fields = {}): Promise<T> {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(fields)) {
    if (value !== undefined) query.set(name, String(value));
  }
  return call(`${operation}?${query}`, { method: 'GET' });
}

/** A field that is undefined is left out. */
export function post<T>(operation: string, fields: Fields): Promise<T> {
  const headers = { 'Content-Type': 'application/json' };
  return call(operation, { method: 'POST', headers, body: JSON.stringify(fields) });
}

/** All items of a list in pages. @param field where a page has them */
export async function* items(
  operation: string,
  field: string,
  fields: Fields = {},
): AsyncGenerator<object> {
  let cursor: string | undefined;
  do {
    const page = await get<{ [field: string]: unknown; cursor?: string }>(operation, {
      ...fields,
      cursor,
    });
    const found = page[field];
    if (!Array.isArray(found)) throw notWeir(200);
    yield* found;
    cursor = page.cursor;
  } while (cursor !== undefined);
}

/** What a header may hold; anything else would be told on by whatever refuses it. */
const KEY = new RegExp(`^[\\x21-\\x7e]{1,${KEY_TEXT_MAX}}$`);

/** @throws StartError for what is no URL */
export function serverUrl(): string {
  const url = process.env.WEIR_URL ?? DEFAULT_URL;
  if (URL.canParse(url)) return url;
  throw new StartError(`WEIR_URL must be a URL like ${DEFAULT_URL}, got ${describe(url)}`);
}

async function call<T>(path: string, init: RequestInit): Promise<T> {
  const url = serverUrl();
  const key = process.env.WEIR_KEY ?? '';
  if (!KEY.test(key)) {
    throw new StartError(
      `WEIR_KEY must hold an API key, 1 to ${KEY_TEXT_MAX} visible characters of ASCII`,
    );
  }
  const headers = { ...init.headers, Authorization: `Bearer ${key}` };
  let status: number;
  let body: string;
  try {
    const signal = AbortSignal.timeout(TIMEOUT_MS);
    const response = await fetch(`${url}/v1/${path}`, { ...init, headers, signal });
    status = response.status;
    body = await response.text();
  } catch (error) {
    const { cause, message } = error as Error;
    const why = cause instanceof Error ? cause.message : message;
    throw new StartError(`there is no answer from ${url} (WEIR_URL): ${why}`);
  }
  let answer: unknown;
  try {
    answer = JSON.parse(body);
  } catch {
    throw notWeir(status);
  }
  if (typeof answer !== 'object' || answer === null) throw notWeir(status);
  if (status === 200) return answer as T;
  const { error } = answer as { error?: { code?: string; message?: string } };
  throw new StartError(`${error?.code ?? status}: ${error?.message ?? body}`);
}

/** For an answer that is none of weir's. */
export function notWeir(status: number): StartError {
  const url = process.env.WEIR_URL ?? DEFAULT_URL;
  return new StartError(`${url} (WEIR_URL) answers ${status}, and not as weir does`);
}
