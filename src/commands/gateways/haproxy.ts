/**
 * haproxy.cfg, which loads weir.lua (`haproxy-lua.ts`). HAProxy asks weir by its own HTTP client,
 * through a section of its own: by itself the client asks up to four times where no answer comes,
 * which may count four times, and tries for seconds where nobody listens. What becomes of a request
 * where weir fails is said by the rules in haproxy.cfg.
 */

import type { Policy } from '../../policies/policy.ts';
import { reducedCapacity } from '../../policies/quota.ts';
import { bareHost, checkPath, dropsUnderscores, quotaHeaders } from './common.ts';
import { variableName } from './haproxy-lua.ts';
import { CONNECTIONS_MAX, type GatewaySetup, QUEUE_TIMEOUT_MS, TIMEOUT_MS } from './setup.ts';

/**
 * Where the section is through which Lua reaches weir: on a port, for with an abstract socket
 * HAProxy 2.6 breaks down in a reload, and a path would have to be there after a chroot.
 */
function sectionAddress({ listenPort, weir, upstream }: GatewaySetup): string {
  const taken = [upstream.port, 'port' in weir ? weir.port : 0];
  const near = [1, 2, 3, -1, -2, -3].map((away) => listenPort + away);
  const port = near.find((port) => port > 0 && port <= PORT_MAX && !taken.includes(port));
  return `127.0.0.1:${port}`;
}

const PORT_MAX = 65_535;

export function haproxy(setup: GatewaySetup): string {
  const { policy, weir, listenPort, upstream } = setup;
  const server = 'socket' in weir ? `unix@${escapeWord(weir.socket)}` : endpoint(weir);
  return `\
# haproxy.cfg: HAProxy 2.5 or later, which asks weir about each request by the policy of
# ${policy.namespace}. With it goes weir.lua:
#   weir gateway haproxy --namespace ${policy.namespace} --lua > weir.lua
# To try it: haproxy -f haproxy.cfg, where both are.

global
  # Those of clients, and as many to weir, which must never wait for a client to go. It takes 16 300
  # descriptors (ulimit -n), without which HAProxy does not start.
  maxconn 8000
  # Where weir.lua asks: the section at the end.
  setenv WEIR_SECTION ${sectionAddress(setup)}
  # A Lua state for each thread: with lua-load all threads would wait for one. Give the whole path
  # where HAProxy starts elsewhere; default-path would be for the first thread only.
  lua-load-per-thread weir.lua

defaults
  mode http
  timeout connect 5s
  timeout client 30s
  timeout server 30s
  timeout http-request 10s
  timeout http-keep-alive 60s
  # Of a WebSocket on which nothing is said.
  timeout tunnel 1h

frontend clients
  # By HTTP/2 a client would ask a hundred times at once on one connection. With TLS: alpn http/1.1
  bind :${listenPort} proto h1
  maxconn 3500
  # Who asks weir is HAProxy, and not its client. Whatever came behind a 2xx for a CONNECT would go
  # past both.
  http-request deny deny_status 405 if METH_CONNECT
  http-request del-header X-Weir-Key
  # To WebSocket only: by another protocol a client could ask past weir.
  http-request set-header Upgrade websocket if { req.hdr(upgrade) -i websocket }
  http-request del-header Upgrade unless { req.hdr(upgrade) -i websocket }
${forwardedForRule(policy)}${dropsUnderscores(policy) ? UNDERSCORES : ''}
  http-request lua.weir
  # Refused: what weir has said, as it has said it.
  ${RETURN_DENIAL}
${failureRule(policy)}
  # How much is left, on every answer in which there is room for it.
  http-after-response strict-mode off
${quotaHeaders(policy).map(responseHeaderRule).join('\n')}
  default_backend application

backend application
  server application ${endpoint(upstream)}

# The way to weir, for weir.lua only. Any other port that is free will do, in WEIR_SECTION as well.
listen weir
  bind ${sectionAddress(setup)}
  http-request deny unless { path ${checkPath(policy)} }
  # Longer than a flood delays an answer on a busy machine.
  timeout connect ${TIMEOUT_MS}ms
  timeout server ${TIMEOUT_MS}ms
  # A flood waits for so long, for one of the connections of the server below.
  timeout queue ${QUEUE_TIMEOUT_MS}ms
  # A request that was not answered may have been counted: it is not sent again.
  retries 0
  # Connections are kept, and shared by all threads. Of those that are not needed, half are closed
  # every second, so that weir, which does it after 10 s, does not come first.
  http-reuse always
  server weir ${server} maxconn ${CONNECTIONS_MAX} pool-purge-delay 1s
`;
}

const UNDERSCORES = `
  # Some applications take X_Api_Key for X-Api-Key, which weir would not have seen.
  http-request del-header _ -m sub`;

const RETURN_DENIAL = [
  'http-request return status 429',
  'content-type application/problem+json lf-string %[var(txn.weir.body)]',
  `hdr Retry-After %[var(${variableName('Retry-After')})] hdr Cache-Control no-store`,
  'if { var(txn.weir.status) -m int 429 }',
].join(' ');

const DENY_ON_FAILURE = [
  'http-request return status 429',
  `content-type application/problem+json string '${reducedCapacity()}'`,
  'hdr Retry-After 1 hdr Cache-Control no-store',
  'unless { var(txn.weir.status) -m int 200 }',
].join(' ');

function forwardedForRule({ trustedHops }: Policy): string {
  return trustedHops === 1
    ? `  # The caller's address is the one that HAProxy sees, whatever its client has sent.
  http-request set-header X-Forwarded-For %[src]`
    : `  # The address that HAProxy sees comes behind those that the proxies before it have set.
  http-request add-header X-Forwarded-For %[src]`;
}

function failureRule({ onError }: Policy): string {
  return onError === 'allow'
    ? '  # Whatever else weir answers, or if it does not: the request passes (onError: allow).'
    : `  # Whatever else weir answers, or if it does not: the request is refused (onError: deny).
  ${DENY_ON_FAILURE}`;
}

function responseHeaderRule(header: string): string {
  const value = `var(${variableName(header)})`;
  return `  http-after-response set-header ${header} %[${value}] if { ${value} -m found }`;
}

function endpoint({ host, port }: { host: string; port: number }): string {
  const bare = bareHost(host);
  return bare.includes(':') ? `[${bare}]:${port}` : `${bare}:${port}`;
}

/** One word of a configuration, whatever is in it. */
function escapeWord(text: string): string {
  return text.replace(/[\s#'"\\]/g, '\\$&');
}
