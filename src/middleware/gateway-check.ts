/**
 * Sends a check for a request to weir, as a gateway does: weir has the limit in a policy, and gets
 * the headers that identify the client. docs/gateways/contract.md describes the protocol.
 */

import type {
  IncomingHttpHeaders,
  IncomingMessage,
  OutgoingHttpHeaders,
  RequestOptions,
} from 'node:http';
import { Agent, get } from 'node:http';
import { Breaker } from './breaker.ts';
import { startDeadline } from './deadline.ts';
import {
  type OnError,
  readKey,
  readOnError,
  readTimeout,
  requireKnownOptions,
  requireOption,
  shownUrl,
} from './options.ts';

/** Each option but `url`, `key` and `timeoutMs` has the value of the policy's field. */
export interface CheckOptions {
  /**
   * weir's listener for gateways: `http://127.0.0.1:7072`, or `unix:/run/weir/gateway.sock`. With
   * a key, its port for checks. TLS is not supported.
   */
  url: string;
  /** The namespace of the policy. */
  namespace: string;
  /** An API key of weir with the permission `limit`. The listener for gateways needs none. */
  key?: string | undefined;
  /**
   * One or more parts of a request that identify a client: `ip` (default), `ip:header:<name>`,
   * `method`, `path`, `header:<name>`, `cookie:<name>`.
   */
  identify?: string | readonly string[];
  /** Requests that the policy skips: `preflight` for those of CORS, and paths. */
  skip?: readonly string[];
  /** `allow` (default) or `deny`: what to do with a request if weir has not decided. */
  onError?: OnError;
  /**
   * Proxies that you run, including this application; 1 by default. With 1 the framework determines
   * the address of the client.
   */
  trustedHops?: number;
  /** Whether responses also have the headers `X-RateLimit-*`. */
  legacyHeaders?: boolean;
  /** How long a check may take on a connection, 1 to 60000 ms; 2000 by default. */
  timeoutMs?: number;
}

export const CHECK_OPTIONS = [
  'url',
  'namespace',
  'key',
  'identify',
  'skip',
  'onError',
  'trustedHops',
  'legacyHeaders',
  'timeoutMs',
];

/** A request to the application. */
export interface CheckedRequest {
  readonly method?: string | undefined;
  /** Without it, `originalUrl` is. */
  readonly url?: string | undefined;
  /** Where a router may have changed `url`. */
  readonly originalUrl?: string | undefined;
  readonly headers: IncomingHttpHeaders;
  /** The client's address, if the framework determines one. */
  readonly ip?: string | undefined;
  readonly socket: { readonly remoteAddress?: string | undefined };
}

/** The part of a response to the client that shows its end. */
export interface ClosingResponse {
  readonly destroyed: boolean;
  once(event: 'close', listener: () => void): unknown;
}

export interface GatewayDecision {
  /** 200 if the request is allowed. Otherwise the status of the response to the client. */
  status: number;
  /** For the response to the client, in both cases. */
  headers: Record<string, string>;
  /** Of the response to a denied client. */
  body: string;
}

const PART_RULE =
  "one or more of 'ip', 'ip:header:<name>', 'method', 'path', 'header:<name>' and 'cookie:<name>'";

// Headers for the client: of every decision, and more for a denial.
const QUOTA_HEADERS = ['RateLimit-Policy', 'RateLimit'];
const LEGACY_HEADERS = ['X-RateLimit-Limit', 'X-RateLimit-Remaining', 'X-RateLimit-Reset'];
const DENIAL_HEADERS = ['Retry-After', 'Cache-Control', 'Content-Type'];

// Decisions if weir has not decided.
const ALLOWED: GatewayDecision = { status: 200, headers: {}, body: '' };
export const DENIED: GatewayDecision = {
  status: 429,
  headers: {
    'Retry-After': '1',
    'Cache-Control': 'no-store',
    'Content-Type': 'application/problem+json',
  },
  body: JSON.stringify({
    type: 'https://iana.org/assignments/http-problem-types#temporary-reduced-capacity',
    title: 'Request cannot be satisfied due to temporary server capacity constraints',
    status: 429,
    detail: 'requests cannot be counted at the moment',
  }),
};

// weir accepts no identity longer than this. The client caused that, so onError does not apply.
const IDENTITY_MAX = 16_384;
const TOO_LARGE: GatewayDecision = { status: 431, headers: {}, body: '' };
const INVALID: GatewayDecision = { status: 400, headers: {}, body: '' };
// Characters that Node sends in no header, for example of a path that the application has decoded.
const INVALID_CHARACTER = /[^\t\x20-\x7e\x80-\xff]/;

// weir skips no path with other characters, and none that is longer.
const SKIPPABLE_PATH = /^[\w./~%-]{1,1536}$/;

// A flood queues for these connections, and the timeout does not include that wait.
const CONNECTIONS_MAX = 64;
// The agent closes an idle connection after this time; weir closes it after 10 s.
const IDLE_MS = 5_000;

/**
 * @param gateway for which the policy is
 * @returns a function that sends one check. It never rejects; a failure is a process warning
 * @throws TypeError for invalid options
 */
export function gatewayCheck(
  gateway: 'express' | 'fastify',
  options: CheckOptions,
): (request: CheckedRequest) => GatewayDecision | Promise<GatewayDecision> {
  requireKnownOptions(options, CHECK_OPTIONS);
  const target: RequestOptions = {
    ...readUrl(options.url),
    path: `/v1/check/${readNamespace(options.namespace)}?gateway=${gateway}`,
    agent: new Agent({ keepAlive: true, timeout: IDLE_MS, maxSockets: CONNECTIONS_MAX }),
  };
  const identity = readIdentity(options);
  const timeoutMs = readTimeout(options.timeoutMs);
  const fallback = readOnError(options.onError) === 'allow' ? ALLOWED : DENIED;
  const { legacyHeaders = false } = options;
  requireOption(
    typeof legacyHeaders === 'boolean',
    'legacyHeaders',
    'true or false',
    legacyHeaders,
  );
  const quotaHeaders = legacyHeaders ? [...QUOTA_HEADERS, ...LEGACY_HEADERS] : QUOTA_HEADERS;
  const breaker = new Breaker();

  return (request) => {
    const headers = identity(request);
    const values = Object.values(headers).join();
    if (values.length > IDENTITY_MAX) return TOO_LARGE;
    if (INVALID_CHARACTER.test(values)) return INVALID;
    const isProbe = breaker.isOpen;
    if (isProbe && !breaker.takeProbe()) return fallback;
    return new Promise((resolve) => {
      let cancelDeadline = () => {};
      const settle = (decision: GatewayDecision) => {
        cancelDeadline();
        resolve(decision);
      };
      const fail = ({ message }: Error) => {
        process.emitWarning(`weir has not answered: ${message}`);
        settle(fallback);
      };
      // Sent once: weir may have counted a check without a response.
      const check = get({ ...target, headers });
      check.on('error', fail);
      check.on('socket', () => {
        // Other checks have timed out while this one waited for a connection.
        if (!isProbe && breaker.isOpen) {
          check.destroy();
          return;
        }
        cancelDeadline = startDeadline(timeoutMs, () => {
          breaker.countTimeout();
          check.destroy();
        });
      });
      check.on('response', (response) => {
        breaker.countResponse();
        let body = '';
        response.setEncoding('utf8');
        response.on('error', fail);
        response.on('data', (text: string) => {
          body += text;
        });
        response.on('end', () => settle(readDecision(response, body) ?? fallback));
      });
    });
  };

  /** @returns undefined if the response is not a decision */
  function readDecision(response: IncomingMessage, body: string): GatewayDecision | undefined {
    const { statusCode: status } = response;
    if (status !== 200 && status !== 429) {
      process.emitWarning(`weir answered ${status}`);
      return undefined;
    }
    const headers: Record<string, string> = {};
    for (const name of status === 200 ? quotaHeaders : [...quotaHeaders, ...DENIAL_HEADERS]) {
      const value = response.headers[name.toLowerCase()];
      if (typeof value === 'string') headers[name] = value;
    }
    return { status, headers, body };
  }
}

function readUrl(value: unknown): { host: string; port: number } | { socketPath: string } {
  const text = typeof value === 'string' ? value : '';
  const [, socketPath] = /^unix:(\/.+)$/.exec(text) ?? [];
  if (socketPath !== undefined) return { socketPath };
  const url = URL.canParse(text) ? new URL(text) : undefined;
  const isPlain = url?.protocol === 'http:' && url.href === `${url.origin}/`;
  const accepted = 'a URL such as http://127.0.0.1:7072, or unix: and the path of a socket';
  requireOption(isPlain, 'url', accepted, shownUrl(value));
  // An IPv6 address has brackets in a URL only.
  return { host: url!.hostname.replace(/^\[(.*)\]$/, '$1'), port: Number(url!.port || 80) };
}

function readNamespace(value: unknown): string {
  const isValid = typeof value === 'string' && /^[\w~][\w.~:@-]{0,511}$/.test(value);
  requireOption(isValid, 'namespace', 'the namespace of a policy of weir', value);
  return value as string;
}

/** The headers that the policy reads; weir gets no others. */
function readIdentity(options: CheckOptions): (request: CheckedRequest) => OutgoingHttpHeaders {
  const { identify = 'ip', skip = [], trustedHops = 1 } = options;
  const isCount = Number.isInteger(trustedHops) && trustedHops >= 1 && trustedHops <= 32;
  requireOption(isCount, 'trustedHops', 'an integer from 1 to 32', trustedHops);
  const parts = Array.isArray(identify) ? identify : [identify];
  requireOption(parts.length > 0 && parts.every(isPart), 'identify', PART_RULE, identify);
  const isSkip = Array.isArray(skip) && skip.every((entry) => /^(preflight$|\/)/.test(entry));
  requireOption(isSkip, 'skip', "an array of 'preflight' and paths such as '/healthz'", skip);
  const skipsPaths = skip.some((entry) => entry !== 'preflight');
  const skipsPreflights = skip.includes('preflight');
  // An option without a value is an error: it may be an environment variable that is not set.
  const key = 'key' in options ? { 'X-Weir-Key': readKey(options.key) } : {};
  const headers = [...namesOf(parts, 'header:'), ...namesOf(parts, 'ip:header:')];
  const headerNames = headers.map((name) => name.toLowerCase());
  const cookieNames = headerNames.includes('cookie') ? [] : namesOf(parts, 'cookie:');

  return (request) => {
    const headers: OutgoingHttpHeaders = { ...key };
    if (parts.includes('ip')) headers['X-Forwarded-For'] = addressOf(request, trustedHops);
    if (parts.includes('method')) headers['X-Forwarded-Method'] = request.method ?? '';
    if (parts.includes('path') || (skipsPaths && SKIPPABLE_PATH.test(pathOf(request)))) {
      headers['X-Forwarded-Uri'] = pathOf(request);
    }
    if (skipsPreflights && request.method === 'OPTIONS') addPreflight(headers, request);
    // Node sends no header for [].
    for (const name of headerNames) headers[name] = request.headers[name] ?? [];
    if (cookieNames.length > 0) headers.Cookie = cookiesOf(request, cookieNames);
    return headers;
  };
}

/** By these weir recognizes a preflight of CORS, which the policy skips. */
function addPreflight(headers: OutgoingHttpHeaders, request: CheckedRequest): void {
  headers['X-Forwarded-Method'] = request.method;
  for (const name of ['origin', 'access-control-request-method']) {
    headers[name] = request.headers[name] ?? [];
  }
}

function isPart(part: unknown): part is string {
  const parts = /^(?:ip|method|path|(?:(?:ip:)?header|cookie):[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128})$/;
  return typeof part === 'string' && parts.test(part);
}

function namesOf(parts: readonly string[], prefix: 'header:' | 'ip:header:' | 'cookie:') {
  return parts.filter((part) => part.startsWith(prefix)).map((part) => part.slice(prefix.length));
}

/** With several hops: all addresses, and the client's is the n-th from the right. */
export function addressOf(request: CheckedRequest, trustedHops: number): string {
  const { remoteAddress } = request.socket;
  // The value from the proxies in front, with the address of the connection appended.
  if (trustedHops > 1) return [request.headers['x-forwarded-for'], remoteAddress].join();
  // A client that has disconnected has no address. weir counts it as unidentified.
  return request.ip ?? remoteAddress ?? 'disconnected';
}

function pathOf({ originalUrl, url }: CheckedRequest): string {
  return (originalUrl ?? url ?? '').split('?', 1)[0];
}

/** Only the cookies with these names. */
function cookiesOf({ headers }: CheckedRequest, names: readonly string[]): string[] {
  const found: string[] = [];
  for (const pair of (headers.cookie ?? '').split(';')) {
    const [name, ...value] = pair.split('=');
    if (names.includes(name.trim())) found.push([name.trim(), ...value].join('='));
  }
  return found;
}
