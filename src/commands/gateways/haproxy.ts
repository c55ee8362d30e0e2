/**
 * Prints haproxy.cfg, or parts to add to an existing one. It loads weir.lua (`haproxy-lua.ts`). Lua
 * sends checks through a proxy section of HAProxy: used directly, HAProxy's HTTP client sends a
 * check up to four times if no response comes, which may count four times, and retries for seconds
 * if weir is stopped. The rules of haproxy.cfg apply onError.
 */

import { gatewayQuery } from '../../policies/gateway-readers.ts';
import {
  GRPC_CONTENT_TYPE,
  GRPC_CONTENT_TYPE_PATTERN,
  GRPC_DENIED_MESSAGE,
  GRPC_DENIED_STATUS,
} from '../../policies/grpc.ts';
import type { Policy } from '../../policies/policy.ts';
import { reducedCapacity } from '../../policies/quota.ts';
import {
  authority,
  checkPath,
  commonQuotaHeaders,
  DOT_SEGMENT,
  describeRoutes,
  dropsUnderscores,
  isWholeSite,
  listensEverywhere,
  requireHostName,
} from './common.ts';
import { variableName } from './haproxy-lua.ts';
import {
  CONNECTIONS_MAX,
  type GatewaySetup,
  QUEUE_TIMEOUT_MS,
  type Route,
  TIMEOUT_MS,
  type Upstream,
} from './setup.ts';

const PORT_MAX = 65_535;

/**
 * The address of the section through which Lua reaches weir, on a port next to that for clients. A
 * reload of HAProxy 2.6 fails with an abstract socket, and a path would have to exist in a chroot.
 */
function sectionAddress({ listen, weir, upstream }: GatewaySetup): string {
  const usedPorts = [upstream.port, 'port' in weir ? weir.port : 0];
  const candidates = [1, 2, 3, -1, -2, -3].map((offset) => listen.port + offset);
  const port = candidates.find((port) => port > 0 && port <= PORT_MAX && !usedPorts.includes(port));
  return `127.0.0.1:${port}`;
}

/** The command that prints weir.lua for the same policies. */
function luaCommand(routes: readonly Route[]): string {
  const names = routes.map(({ policy, prefix }) => {
    return `--namespace ${policy.namespace}${prefix === '/' ? '' : `=${prefix}`}`;
  });
  // Only the first namespace has the prefix / by default.
  const order = names.toSorted((a, b) => Number(a.includes('=')) - Number(b.includes('=')));
  return `weir gateway haproxy ${order.join(' ')} --lua > weir.lua`;
}

export function haproxy(setup: GatewaySetup): string {
  const { routes, listen, upstream } = setup;
  return `\
# haproxy.cfg for HAProxy ${upstream.isHttps ? '2.6' : '2.5'} or later: ${describeRoutes(routes)}
# It needs weir.lua:
#   ${luaCommand(routes)}
# To try it, in the directory of both files: haproxy -f haproxy.cfg

global
  # Connections of clients, and as many to weir, so that a check never waits for a client. HAProxy
  # needs 16 300 descriptors (ulimit -n) for them and does not start with fewer.
  maxconn 8000
${globalRules(setup)}

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
  bind ${authority(listen)}${listensEverywhere(listen) ? ' v4v6' : ''} proto h1
  maxconn 3500
${requestRules(routes)}
  default_backend application

backend application
${applicationServer(upstream)}

${weirSection(setup)}`;
}

export function haproxySnippet(setup: GatewaySetup): string {
  const { routes } = setup;
  return `\
# For HAProxy 2.5 or later: ${describeRoutes(routes)}
# Add these parts to an existing haproxy.cfg. Each part begins with the place where it goes. They
# need weir.lua:
#   ${luaCommand(routes)}

# Part 1: in "global". A check uses two more connections: raise maxconn.
${globalRules(setup)}

# Part 2: in each "frontend" with paths to protect, before its use_backend rules.
${snippetRules(routes)}

# Part 3: at the end of the file.
defaults weir
  mode http
  timeout client 30s

${weirSection(setup, ' from weir')}`;
}

function globalRules(setup: GatewaySetup): string {
  return `\
  # The section at the end, to which weir.lua sends checks.
  setenv WEIR_SECTION ${sectionAddress(setup)}
  # One Lua state for each thread: with lua-load all threads would share one lock. Use an absolute
  # path if HAProxy starts in another directory; default-path applies to the first thread only.
  lua-load-per-thread weir.lua`;
}

function requestRules(routes: readonly Route[]): string {
  return `\
${CONNECT_RULE}${unsafePathRule(routes)}
  # Only weir reads this header: remove it from clients' requests.
  http-request del-header X-Weir-Key
  # Allow upgrades to WebSocket only: over another protocol a client could bypass weir.
  http-request set-header Upgrade websocket if { req.hdr(upgrade) -i websocket }
  http-request del-header Upgrade unless { req.hdr(upgrade) -i websocket }
${forwardedForRule(routes[0].policy)}${dropsUnderscoresFor(routes) ? `\n${UNDERSCORES}` : ''}
${checkRules(routes)}`;
}

/** Changes only requests that weir.lua checks. */
function snippetRules(routes: readonly Route[]): string {
  const isChecked = isWholeSite(routes) ? '' : ' { var(txn.weir.denies) -m found }';
  const condition = isChecked === '' ? '' : ` if${isChecked}`;
  const [{ policy }] = routes;
  const forwardedFor = `
${forwardedForRule(policy)}
  # It replaces "option forwardfor".`;
  return `\
${CONNECT_RULE}${unsafePathRule(routes)}${policy.trustedHops > 1 ? forwardedFor : ''}
${checkRules(routes)}
  # Only weir reads this header: remove it from clients' requests.
  http-request del-header X-Weir-Key${condition}
  # Allow upgrades to WebSocket only: over another protocol a client could bypass weir.
  http-request set-header Upgrade websocket if${isChecked} { req.hdr(upgrade) -i websocket }
  http-request del-header Upgrade if${isChecked} !{ req.hdr(upgrade) -i websocket }${
    dropsUnderscoresFor(routes) ? `\n${UNDERSCORES}${condition}` : ''
  }`;
}

function dropsUnderscoresFor(routes: readonly Route[]): boolean {
  return dropsUnderscores(...routes.map(({ policy }) => policy));
}

function checkRules(routes: readonly Route[]): string {
  return `\
  http-request lua.weir
  # Denied: a gRPC client receives its status in headers, others weir's response.
  ${IS_GRPC}
  ${RETURN_GRPC} if weir_grpc { var(txn.weir.status) -m int 429 }
  ${RETURN_DENIAL}
${failureRules(routes)}
  # Add the quota headers to every response; non-strict: skip them if the buffer has no room.
  http-after-response strict-mode off
${['Retry-After', ...commonQuotaHeaders(routes)].map(responseHeaderRule).join('\n')}
  # HAProxy sends no Content-Type with a response that has no body.
  ${GRPC_TYPE_RULE}`;
}

/** The section through which weir.lua reaches weir. @param from text that names its defaults */
function weirSection(setup: GatewaySetup, from = ''): string {
  const { routes, weir } = setup;
  const paths = routes.map(({ policy }) => checkPath(policy)).join(' ');
  const server = 'socket' in weir ? `unix@${escapeWord(weir.socket)}` : authority(weir);
  return `\
# Forwards checks of weir.lua to weir. To use another free port, change WEIR_SECTION as well.
listen weir${from}
  bind ${sectionAddress(setup)}
  http-request deny unless { path ${paths} } { query ${gatewayQuery('haproxy')} }
  # Long enough for responses that a flood delays on a busy machine.
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

/** @throws StartError for an https application with an address */
function applicationServer(upstream: Upstream): string {
  requireHostName('HAProxy', upstream);
  const { isHttps, host, path } = upstream;
  const server = `server application ${authority(upstream)} ssl verify required`;
  const pathRule = path === undefined ? '' : `  http-request set-path ${path}%[path]\n`;
  if (!isHttps) return `${pathRule}  server application ${authority(upstream)}`;
  return `\
${pathRule}  http-request set-header X-Forwarded-Host %[req.hdr(Host)]
  http-request set-header Host ${authority(upstream, 443)}
  # HAProxy verifies the certificate, also its name. For a private CA, replace @system-ca by its
  # file.
  ${server} ca-file @system-ca sni str(${host})`;
}

const CONNECT_RULE = `\
  # After a 2xx for a CONNECT, the client's data would bypass HAProxy and weir.
  http-request deny deny_status 405 if METH_CONNECT`;

function unsafePathRule(routes: readonly Route[]): string {
  if (isWholeSite(routes)) return '';
  return `
  # weir.lua chooses a policy by the path without dot segments, but HAProxy forwards the path as
  # received. An application may take /login/../x for /login. Browsers do not send such paths.
  http-request deny deny_status 400 if { path -m reg -i '\\\\|${DOT_SEGMENT}' }`;
}

const UNDERSCORES = `\
  # Some applications read X_Api_Key as X-Api-Key, which weir would not have counted.
  http-request del-header _ -m sub`;

const RETURN_DENIAL = [
  'http-request return status 429',
  'content-type application/problem+json lf-string %[var(txn.weir.body)]',
  'hdr Cache-Control no-store',
  'if { var(txn.weir.status) -m int 429 }',
].join(' ');

const IS_GRPC = `acl weir_grpc req.hdr(content-type) -m reg '${GRPC_CONTENT_TYPE_PATTERN}'`;

const GRPC_TYPE_RULE = [
  `http-after-response set-header Content-Type ${GRPC_CONTENT_TYPE}`,
  'if { res.hdr(grpc-status) -m found } !{ res.hdr(content-type) -m found }',
].join(' ');

const RETURN_GRPC = [
  'http-request return status 200',
  `hdr grpc-status ${GRPC_DENIED_STATUS} hdr grpc-message '${GRPC_DENIED_MESSAGE}'`,
  'hdr Cache-Control no-store',
].join(' ');

const DENY_ON_FAILURE = [
  'http-request return status 429',
  `content-type application/problem+json string '${reducedCapacity()}'`,
  'hdr Retry-After 1 hdr Cache-Control no-store',
].join(' ');

function forwardedForRule({ trustedHops }: Policy): string {
  return trustedHops === 1
    ? `  # Replace the client's X-Forwarded-For by the address of the connection.
  http-request set-header X-Forwarded-For %[src]`
    : `  # Append the address of the connection to what the proxies in front have set.
  http-request add-header X-Forwarded-For %[src]`;
}

/** weir.lua sets the variable for a policy that denies a request without a decision. */
function failureRules(routes: readonly Route[]): string {
  const denying = routes.filter(({ policy }) => policy.onError === 'deny');
  if (denying.length === 0) {
    return '  # onError: allow. Without a decision of weir the request is allowed.';
  }
  const condition = isWholeSite(routes)
    ? '!{ var(txn.weir.status) -m int 200 }'
    : '{ var(txn.weir.denies) -m bool } !{ var(txn.weir.status) -m int 200 }';
  return `\
  # onError: deny. Without a decision of weir the request is denied.
  ${RETURN_GRPC} hdr Retry-After 1 if weir_grpc ${condition}
  ${DENY_ON_FAILURE} if ${condition}`;
}

function responseHeaderRule(header: string): string {
  const value = `var(${variableName(header)})`;
  return `  http-after-response set-header ${header} %[${value}] if { ${value} -m found }`;
}

/** Escapes a text as one word of haproxy.cfg. */
function escapeWord(text: string): string {
  return text.replace(/[\s#'"\\]/g, '\\$&');
}
