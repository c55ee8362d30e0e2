/**
 * Emulates Traefik's forwardAuth, after traefik/traefik: pkg/middlewares/forwardedheaders/
 * forwarded_header.go for the entry point, pkg/middlewares/headers/header.go, and
 * pkg/middlewares/auth/forward.go, which changed in 3.7. The serialization follows golang/go:
 * src/net/http/request.go and header.go.
 */

import { parse } from 'yaml';
import {
  applicationResponse,
  type ClientRequest,
  type EmulatorOptions,
  type GatewayEmulator,
  HOST,
  KEY_VARIABLE,
  sendOnce,
  serializeHead,
} from './gateway-emulator.ts';

type TraefikVersion = '3.0' | '3.7';

interface Middleware {
  headers?: { customRequestHeaders: Record<string, string> };
  forwardAuth?: {
    address: string;
    trustForwardHeader: boolean;
    authRequestHeaders?: string[];
    authResponseHeaders: string[];
  };
}

type HeaderValues = Map<string, string[]>;

const X_FORWARDED_HEADERS = [
  ...['Proto', 'For', 'Host', 'Port', 'Server', 'Uri', 'Method', 'Tls-Client-Cert'],
  'Tls-Client-Cert-Info',
].map((name) => `X-Forwarded-${name}`);
const HOP_BY_HOP_HEADERS = [
  'Connection',
  'Keep-Alive',
  'Te',
  'Trailers',
  'Transfer-Encoding',
  'Upgrade',
];
/** client.Timeout in forward.go; no setting changes it. */
const TIMEOUT_MS = 30_000;

/** http.CanonicalHeaderKey */
function canonicalHeaderName(name: string): string {
  return name
    .split('-')
    .map((word) => word.slice(0, 1).toUpperCase() + word.slice(1).toLowerCase())
    .join('-');
}

function normalizeHeaders({ headers = [] }: ClientRequest): HeaderValues {
  const header: HeaderValues = new Map();
  for (const [name, value] of headers) {
    const key = canonicalHeaderName(name);
    header.set(key, [...(header.get(key) ?? []), value]);
  }
  return header;
}

/** @param trustedIPs the proxies in front, from the static configuration */
function applyEntryPoint(header: HeaderValues, from: string, trustedIPs: string[]): void {
  if (!trustedIPs.includes(from))
    for (const name of [...X_FORWARDED_HEADERS, 'X-Real-Ip']) header.delete(name);
  if (!header.has('X-Real-Ip')) header.set('X-Real-Ip', [from]);
  if (!header.has('X-Forwarded-Proto')) header.set('X-Forwarded-Proto', ['http']);
  if (!header.has('X-Forwarded-Port')) header.set('X-Forwarded-Port', ['80']);
  if (!header.has('X-Forwarded-Host')) header.set('X-Forwarded-Host', [HOST]);
  const chain = header.get('X-Forwarded-For');
  if (chain !== undefined) header.set('X-Forwarded-For', [chain.join(', ')]);
  header.set('X-Forwarded-Server', ['traefik']);
  for (const name of (header.get('Connection') ?? []).flatMap((line) => line.split(','))) {
    const key = canonicalHeaderName(name.trim());
    if (!X_FORWARDED_HEADERS.includes(key)) header.delete(key);
  }
  header.delete('Connection');
}

function applyCustomHeaders(header: HeaderValues, middleware: Middleware): void {
  for (const [name, value] of Object.entries(middleware.headers!.customRequestHeaders)) {
    if (value === '') header.delete(canonicalHeaderName(name));
    else header.set(canonicalHeaderName(name), [value]);
  }
}

/** Before 3.7 Traefik overwrites a client's value, and keeps it if the client is trusted. */
function buildAuthHeaders(
  request: ClientRequest,
  from: string,
  header: HeaderValues,
  auth: NonNullable<Middleware['forwardAuth']>,
  version: TraefikVersion,
): HeaderValues {
  const { trustForwardHeader: isTrusted } = auth;
  const allowed = (auth.authRequestHeaders ?? []).map(canonicalHeaderName);
  const isFiltered = allowed.length > 0;
  if (version === '3.7' && isTrusted && isFiltered) allowed.push(...X_FORWARDED_HEADERS);
  const forwarded = [...header].filter(([name]) => {
    if (HOP_BY_HOP_HEADERS.includes(name)) return false;
    if (version === '3.7' && !isTrusted && X_FORWARDED_HEADERS.includes(name)) return false;
    return !isFiltered || allowed.includes(name);
  });
  const out: HeaderValues = new Map(forwarded);
  const prior = isTrusted ? (header.get('X-Forwarded-For') ?? []) : [];
  out.set('X-Forwarded-For', [[...prior, from].join(', ')]);
  const own: [string, string][] = [
    ['X-Forwarded-Method', request.method ?? 'GET'],
    ['X-Forwarded-Proto', 'http'],
    ['X-Forwarded-Host', HOST],
    ['X-Forwarded-Uri', request.target ?? '/'],
  ];
  if (version === '3.7') own.push(['X-Forwarded-Port', '80']);
  for (const [name, value] of own) out.set(name, (isTrusted && header.get(name)) || [value]);
  return out;
}

/** net/http writes sorted names; the transport appends its own headers. */
function serializeRequest(address: URL, header: HeaderValues): Buffer {
  const agent = header.get('User-Agent')?.[0] ?? 'Go-http-client/1.1';
  const others = [...header]
    .filter(([name]) => !['User-Agent', 'Content-Length', 'Host'].includes(name))
    .sort(([a], [b]) => (a < b ? -1 : 1))
    .flatMap(([name, values]) => values.map((value): [string, string] => [name, value]));
  const headers = [['Host', address.host] as [string, string], ['User-Agent', agent], ...others];
  if (!header.has('Accept-Encoding')) headers.push(['Accept-Encoding', 'gzip']);
  return serializeHead(`GET ${address.pathname} HTTP/1.1`, headers as [string, string][]);
}

/** @param text the printed configuration, which contains a template of Traefik */
export function emulateTraefik(
  text: string,
  { key = '', trustedIPs = [] }: EmulatorOptions = {},
  version: TraefikVersion = '3.7',
): GatewayEmulator {
  const template = `{{ env "${KEY_VARIABLE}" }}`;
  const { http } = parse(text.replaceAll(template, key));
  const chain: Middleware[] = http.routers.application.middlewares.map(
    (name: string) => http.middlewares[name],
  );
  const authIndex = chain.findIndex(({ forwardAuth }) => forwardAuth !== undefined);
  const auth = chain[authIndex].forwardAuth!;
  const address = new URL(auth.address);
  const prepare = (request: ClientRequest) => {
    const from = request.remoteAddress ?? '198.51.100.1';
    const header = normalizeHeaders(request);
    applyEntryPoint(header, from, trustedIPs);
    for (const earlier of chain.slice(0, authIndex)) applyCustomHeaders(header, earlier);
    return {
      header,
      bytes: serializeRequest(address, buildAuthHeaders(request, from, header, auth, version)),
    };
  };
  return {
    checkRequest: (request) => prepare(request).bytes,
    send: async (request) => {
      const { header, bytes } = prepare(request);
      const { hostname, port } = address;
      const response = await sendOnce(hostname, Number(port), bytes, TIMEOUT_MS);
      if (response === undefined) return { status: 500, headers: {}, body: '' };
      if (response.status < 200 || response.status >= 300) {
        const relayed = Object.entries(response.headers).filter(([name]) => {
          return !HOP_BY_HOP_HEADERS.includes(canonicalHeaderName(name));
        });
        const body = request.method === 'HEAD' ? '' : response.body;
        return { status: response.status, headers: Object.fromEntries(relayed), body };
      }
      for (const name of auth.authResponseHeaders) {
        header.delete(canonicalHeaderName(name));
        const value = response.headers[name.toLowerCase()];
        if (value !== undefined) header.set(canonicalHeaderName(name), [value]);
      }
      for (const later of chain.slice(authIndex + 1)) applyCustomHeaders(header, later);
      const application = [...header].map(([name, values]) => {
        return [name.toLowerCase(), values.join(', ')];
      });
      return applicationResponse(request, Object.fromEntries(application));
    },
  };
}
