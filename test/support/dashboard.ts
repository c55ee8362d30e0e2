/** A client of the dashboard, which sends what its page in a browser sends. */

import { type IncomingHttpHeaders, type IncomingMessage, request } from 'node:http';
import type { SessionInfo } from '../../src/observe/dashboard/snapshot.ts';
import { type Fields, type Operation, pathAndMethodOf } from './operations.ts';
import { ROOT_KEY, waitUntil } from './server.ts';

export interface AdminRequest {
  method?: string;
  path: string;
  /** A header with the value '' is omitted. */
  headers?: Record<string, string>;
  body?: string;
}

export interface AdminResponse {
  status: number;
  headers: IncomingHttpHeaders;
  text: string;
}

function open(adminUrl: string, { method = 'GET', path, headers = {}, body }: AdminRequest) {
  const { host, hostname, port } = new URL(adminUrl);
  const sent = Object.fromEntries(
    Object.entries({ Host: host, ...headers }).filter(([, value]) => value !== ''),
  );
  const req = request({ hostname, port, method, path, headers: sent, agent: false });
  const response = new Promise<IncomingMessage>((resolve, reject) => {
    req.on('response', resolve).on('error', reject);
  });
  req.end(body);
  return { req, response };
}

export async function sendToAdmin(adminUrl: string, sent: AdminRequest): Promise<AdminResponse> {
  const response = await open(adminUrl, sent).response;
  let text = '';
  response.setEncoding('utf8');
  for await (const chunk of response) text += chunk;
  return { status: response.statusCode ?? 0, headers: response.headers, text };
}

/** The message of an error of the API. */
export function messageOf({ text }: AdminResponse): string {
  return JSON.parse(text).error.message;
}

export interface DashboardEvent {
  event: string;
  data: Record<string, unknown>;
}

/** An event stream, and what it has received. */
export interface EventStream {
  status: number;
  events: DashboardEvent[];
  isEnded: () => boolean;
  /** Waits for an event of this name. */
  next: (event: string) => Promise<DashboardEvent['data']>;
  close: () => void;
}

export class DashboardClient {
  readonly adminUrl: string;
  readonly cookie: string;
  readonly session: SessionInfo;
  /** Of each request. */
  readonly #headers: Record<string, string>;

  private constructor(
    adminUrl: string,
    cookie: string,
    session: SessionInfo,
    headers: Record<string, string>,
  ) {
    this.adminUrl = adminUrl;
    this.cookie = cookie;
    this.session = session;
    this.#headers = headers;
  }

  static async signIn(adminUrl: string, key = ROOT_KEY): Promise<DashboardClient> {
    return DashboardClient.#of(await signIn(adminUrl, key), adminUrl, {});
  }

  /**
   * Signs in a user of a proxy.
   * @param headers of this and all later requests: those of the proxy, or those for it
   */
  static async signInUser(
    adminUrl: string,
    headers: Record<string, string>,
  ): Promise<DashboardClient> {
    return DashboardClient.#of(await signIn(adminUrl, undefined, headers), adminUrl, headers);
  }

  static #of(
    response: AdminResponse,
    adminUrl: string,
    headers: Record<string, string>,
  ): DashboardClient {
    if (response.status !== 200) throw new Error(`${response.status} ${response.text}`);
    const [setCookie = ''] = response.headers['set-cookie'] ?? [];
    const [cookie] = setCookie.split(';');
    return new DashboardClient(adminUrl, cookie, JSON.parse(response.text).session, headers);
  }

  /** Sends a request of the session. */
  send(sent: AdminRequest): Promise<AdminResponse> {
    const own = {
      Origin: this.adminUrl,
      ...this.#headers,
      Cookie: this.cookie,
      'X-Weir-Csrf': this.session.csrfToken,
      ...(sent.body !== undefined && { 'Content-Type': 'application/json' }),
    };
    return sendToAdmin(this.adminUrl, { ...sent, headers: { ...own, ...sent.headers } });
  }

  /** Calls an operation of the API. */
  call(operation: Operation, fields: Fields = {}): Promise<AdminResponse> {
    const path = `/dashboard/api/${operation}`;
    if (pathAndMethodOf(operation).method === 'POST') {
      return this.send({ method: 'POST', path, body: JSON.stringify(fields) });
    }
    const query = Object.entries(fields).map(([name, value]): [string, string] => {
      return [name, String(value)];
    });
    return this.send({ path: `${path}?${new URLSearchParams(query)}` });
  }

  async openEvents(): Promise<EventStream> {
    const path = '/dashboard/events';
    const headers = { ...this.#headers, Cookie: this.cookie };
    const { req, response } = open(this.adminUrl, { path, headers });
    const res = await response;
    const events: DashboardEvent[] = [];
    let [rest, isEnded] = ['', false];
    res.setEncoding('utf8').on('data', (chunk: string) => {
      const blocks = (rest + chunk).split('\n\n');
      rest = blocks.pop()!;
      for (const block of blocks) {
        const [, event, data] = /^event: (\S+)\ndata: (.*)$/.exec(block) ?? [];
        if (event !== undefined) events.push({ event, data: JSON.parse(data) });
      }
    });
    res.on('close', () => {
      isEnded = true;
    });
    res.on('error', () => {});
    req.on('error', () => {});
    return {
      status: res.statusCode ?? 0,
      events,
      isEnded: () => isEnded,
      next: async (name) => {
        const known = events.length;
        await waitUntil(`there is an event ${name}`, () => {
          return events.slice(known).some(({ event }) => event === name);
        });
        return events.slice(known).find(({ event }) => event === name)!.data;
      },
      close: () => req.destroy(),
    };
  }
}

/** @param key undefined for a user whom a proxy signs in */
export function signIn(
  adminUrl: string,
  key: string | undefined,
  headers: Record<string, string> = {},
): Promise<AdminResponse> {
  return sendToAdmin(adminUrl, {
    method: 'POST',
    path: '/dashboard/session',
    headers: { Origin: adminUrl, 'Content-Type': 'application/json', ...headers },
    body: JSON.stringify({ key }),
  });
}
