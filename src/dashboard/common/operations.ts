/**
 * Requests to the server: the session, and operations of the API. A failed request is a
 * RequestError with the message of the API. A 401 means that the session is over.
 */

import type { ApiOperation, ResponseOf } from '../../api/operations/documentation.ts';
import type { SessionInfo, SessionState } from '../../observe/dashboard/snapshot.ts';

export class RequestError extends Error {
  /** 0 where the server did not answer. */
  readonly status: number;

  constructor(status: number, message: string) {
    super(message);
    this.status = status;
  }
}

/** Those of v1. */
type Operation = Exclude<ApiOperation, `ratelimit.${string}`>;
export type Response<Name extends Operation> = ResponseOf<Name>;
export type NamespaceTotals = Response<'analytics.getNamespaces'>['namespaces'][number];
export type TimelinePoint = Response<'analytics.getTimeline'>['points'][number];
export type RankedIdentifier = Response<'analytics.getIdentifiers'>['denied'][number];

type Fields = Record<string, unknown>;

let csrfToken = '';
let onSessionEnd = (_reason: string) => {};

/** @param handler called when the server says that there is no session any more */
export function handleSessionEnd(handler: (reason: string) => void): void {
  onSessionEnd = handler;
}

async function send<T>(method: string, path: string, body?: string): Promise<T> {
  const headers: Record<string, string> = {};
  if (method !== 'GET') headers['X-Weir-Csrf'] = csrfToken;
  if (body !== undefined) headers['Content-Type'] = 'application/json';
  let response: globalThis.Response | undefined;
  let content: unknown;
  try {
    response = await fetch(path, { method, headers, ...(body !== undefined && { body }) });
    content = await response.json();
  } catch {
    if (response?.status === 401 || response?.status === 403) {
      const message = 'A proxy in front of weir has rejected the request: load the page again';
      throw new RequestError(0, message);
    }
    throw new RequestError(0, 'weir does not respond. Nothing is known of the result.');
  }
  if (response.ok) return content as T;
  throw new RequestError(response.status, messageOf(content, response.status));
}

/** The message of an error of the API, or of the admin port. */
function messageOf(content: unknown, status: number): string {
  const { error } = content as { error?: string | { message?: string } };
  const message = typeof error === 'string' ? error : error?.message;
  return message ?? `weir answered with the status ${status}`;
}

export async function sessionState(): Promise<SessionState> {
  const state = await send<SessionState>('GET', '/dashboard/session');
  if (state.session !== null) begin(state.session);
  return state;
}

/** @param key undefined for a user whom a proxy has signed in */
export async function signIn(key?: string): Promise<SessionInfo> {
  const body = JSON.stringify({ key });
  const { session } = await send<{ session: SessionInfo }>('POST', '/dashboard/session', body);
  begin(session);
  return session;
}

function begin(session: SessionInfo): void {
  csrfToken = session.csrfToken;
}

export async function signOut(): Promise<void> {
  await send('DELETE', '/dashboard/session');
}

/** Operations that are GET requests. */
const READS: readonly Operation[] = [
  'analytics.getNamespaces',
  'analytics.getTimeline',
  'analytics.getIdentifiers',
  'analytics.searchIdentifiers',
  'analytics.getDecisions',
  'ratelimits.getOverride',
  'ratelimits.listOverrides',
  'ratelimits.listBlocks',
  'ratelimits.exportOverrides',
  'ratelimits.listNamespaces',
  'ratelimits.listPolicies',
  'keys.list',
  'audit.list',
];

/** Calls an operation of the API. A field that is undefined is left out. */
export async function call<Name extends Operation>(
  operation: Name,
  fields: Fields = {},
): Promise<Response<Name>> {
  const path = `/dashboard/api/${operation}`;
  try {
    if (!READS.includes(operation)) return await send('POST', path, JSON.stringify(fields));
    const given = Object.entries(fields).filter(([, value]) => value !== undefined);
    const query = new URLSearchParams(given.map(([name, value]) => [name, String(value)]));
    return await send('GET', `${path}?${query}`);
  } catch (error) {
    if (error instanceof RequestError && error.status === 401) onSessionEnd(error.message);
    throw error;
  }
}

/**
 * Calls an operation that lists, page by page.
 * @param itemsMax after which no more pages are read
 */
export async function callAll<Name extends Operation, Item>(
  operation: Name,
  fields: Fields,
  itemsOf: (response: Response<Name>) => readonly Item[],
  itemsMax: number,
): Promise<{ items: Item[]; isComplete: boolean }> {
  const items: Item[] = [];
  let cursor: string | undefined;
  do {
    const page = await call(operation, { ...fields, cursor });
    items.push(...itemsOf(page));
    cursor = (page as { cursor?: string }).cursor;
  } while (cursor !== undefined && items.length < itemsMax);
  return { items, isComplete: cursor === undefined };
}
