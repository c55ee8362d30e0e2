/**
 * Prints haproxy.cfg, which loads weir.lua (`haproxy-lua.ts`). Lua sends checks through a proxy
 * section of HAProxy: used directly, HAProxy's HTTP client sends a check up to four times if no
 * response comes, which may count four times, and retries for seconds if weir is stopped. The rules
 * of haproxy.cfg apply onError.
 */

import type { Policy } from '../../policies/policy.ts';
import { reducedCapacity } from '../../policies/quota.ts';
import { bareHost, checkPath, dropsUnderscores, quotaHeaders } from './common.ts';
import { variableName } from './haproxy-lua.ts';
import { CONNECTIONS_MAX, type GatewaySetup, QUEUE_TIMEOUT_MS, TIMEOUT_MS } from './setup.ts';

const PORT_MAX = 65_535;

/**
 * The address of the section through which Lua reaches weir, on a port next to `listenPort`. With
 * an abstract socket a reload of HAProxy 2.6 fails; a path would have to exist inside a chroot.
 */
function sectionAddress({ listenPort, weir, upstream }: GatewaySetup): string {
  const usedPorts = [upstream.port, 'port' in weir ? weir.port : 0];
  const candidates = [1, 2, 3, -1, -2, -3].map((offset) => listenPort + offset);
  const port = candidates.find((port) => port > 0 && port <= PORT_MAX && !usedPorts.includes(port));
  return `127.0.0.1:${port}`;
}

export function haproxy(setup: GatewaySetup): string {
  const { policy, weir, listenPort, upstream } = setup;
  const server = 'socket' in weir ? `unix@${escapeWord(weir.socket)}` : endpoint(weir);
  return `\
# haproxy.cfg for HAProxy 2.5 or later: checks each request with the policy ${policy.namespace} of
# weir. It needs weir.lua:
#   weir gateway haproxy --namespace ${policy.namespace} --lua > weir.lua
# To try it, in the directory of both files: haproxy -f haproxy.cfg

global
  # Connections of clients, and as many to weir, so that a check never waits for a client. HAProxy
  # needs 16 300 descriptors (ulimit -n) for them and does not start with fewer.
  maxconn 8000
  # The section at the end, to which weir.lua sends checks.
  setenv WEIR_SECTION ${sectionAddress(setup)}
  # One Lua state for each thread: with lua-load all threads would share one lock. Use an absolute
  # path if HAProxy starts in another directory; default-path applies to the first thread only.
  lua-load-per-thread weir.lua

defaults
  mode http
  timeout connect 5s
  timeout client 30s
  timeout server 30s
  timeout http-request 10s
  timeout http-keep-alive 60s
  # For an idle WebSocket.
  timeout tunnel 1h

frontend clients
  # Over HTTP/2 one connection could send a hundred requests at once. With TLS: alpn http/1.1
  bind :${listenPort} proto h1
  maxconn 3500
  # After a 2xx for a CONNECT, the client's data would bypass HAProxy and weir.
  http-request deny deny_status 405 if METH_CONNECT
  # Only weir reads this header: remove a client's.
  http-request del-header X-Weir-Key
  # Allow upgrades to WebSocket only: over another protocol a client could bypass weir.
  http-request set-header Upgrade websocket if { req.hdr(upgrade) -i websocket }
  http-request del-header Upgrade unless { req.hdr(upgrade) -i websocket }
${forwardedForRule(policy)}${dropsUnderscores(policy) ? UNDERSCORES : ''}
  http-request lua.weir
  # Denied: the client receives weir's response.
  ${RETURN_DENIAL}
${failureRule(policy)}
  # Add the quota headers to every response; non-strict: skip them if the buffer has no room.
  http-after-response strict-mode off
${quotaHeaders(policy).map(responseHeaderRule).join('\n')}
  default_backend application

backend application
  server application ${endpoint(upstream)}

# Forwards checks of weir.lua to weir. To use another free port, change WEIR_SECTION as well.
listen weir
  bind ${sectionAddress(setup)}
  http-request deny unless { path ${checkPath(policy)} }
  # A flood delays responses on a busy machine by less.
  timeout connect ${TIMEOUT_MS}ms
  timeout server ${TIMEOUT_MS}ms
  # How long a check of a flood waits for one of the connections of the server below.
  timeout queue ${QUEUE_TIMEOUT_MS}ms
  # weir may have counted a check that failed: do not repeat it.
  retries 0
  # All threads share idle connections. HAProxy closes half of the unused ones every second; weir
  # closes idle connections after 10 s, and HAProxy must close them earlier.
  http-reuse always
  server weir ${server} maxconn ${CONNECTIONS_MAX} pool-purge-delay 1s
`;
}

const UNDERSCORES = `
  # Some applications read X_Api_Key as X-Api-Key, which weir would not have counted.
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
    ? `  # Replace the client's X-Forwarded-For by the address of the connection.
  http-request set-header X-Forwarded-For %[src]`
    : `  # Append the address of the connection to what the proxies in front have set.
  http-request add-header X-Forwarded-For %[src]`;
}

function failureRule({ onError }: Policy): string {
  return onError === 'allow'
    ? '  # onError: allow. Without a decision of weir the request is allowed.'
    : `  # onError: deny. Without a decision of weir the request is denied.
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

/** Escapes a text as one word of haproxy.cfg. */
function escapeWord(text: string): string {
  return text.replace(/[\s#'"\\]/g, '\\$&');
}
