/**
 * haproxy.cfg, and the Lua file that it loads. HAProxy asks weir by its own HTTP client, through a
 * section of its own: by itself the client asks up to four times where no answer comes, which may
 * count four times, and tries for seconds where nobody listens. What becomes of a request where
 * weir fails is said by the rules in haproxy.cfg.
 */

import { IDENTIFIER_MAX_CHARACTERS } from '../../limits.ts';
import type { Policy } from '../../policies/policy.ts';
import { reducedCapacity } from '../../policies/quota.ts';
import { bareHost, checkPath, dropsUnderscores, namesOf, quotaHeaders } from './names.ts';
import { type Setup, TIMEOUT_MS } from './setup.ts';

/** More identifies nobody, for weir either: a character of UTF-8 has four bytes at most. */
const IDENTITY_BYTES_MAX = 4 * IDENTIFIER_MAX_CHARACTERS;

/**
 * Where the section is through which Lua reaches weir: on a port, for with an abstract socket
 * HAProxy 2.6 breaks down in a reload, and a path would have to be there after a chroot.
 */
function section({ listen, weir, upstream }: Setup): string {
  const taken = [upstream.port, 'port' in weir ? weir.port : 0];
  const near = [1, 2, 3, -1, -2, -3].map((away) => listen + away);
  const port = near.find((port) => port > 0 && port <= PORT_MAX && !taken.includes(port));
  return `127.0.0.1:${port}`;
}

const PORT_MAX = 65_535;

/** Where Lua leaves what weir says in a header. */
function variable(header: string): string {
  return `txn.weir.${header.toLowerCase().replaceAll('-', '_')}`;
}

export function haproxy(setup: Setup): string {
  const { policy, weir, listen, upstream } = setup;
  const server = 'socket' in weir ? `unix@${word(weir.socket)}` : endpoint(weir);
  return `\
# haproxy.cfg: HAProxy 2.5 or later, which asks weir about each request by the policy of
# ${policy.namespace}. With it goes weir.lua:
#   weir gateway haproxy --namespace ${policy.namespace} --lua > weir.lua
# To try it: haproxy -f haproxy.cfg, where both are.

global
  # Those of clients, and as many to weir, which must never wait for a client to go. It takes 16 100
  # descriptors (ulimit -n), without which HAProxy does not start.
  maxconn 8000
  # Where weir.lua asks: the section at the end.
  setenv WEIR_SECTION ${section(setup)}
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

frontend clients
  # By HTTP/2 a client would ask a hundred times at once on one connection. With TLS: alpn http/1.1
  bind :${listen} proto h1
  maxconn 3500
  # Who asks weir is HAProxy, and not its client. Whatever came behind a 2xx for a CONNECT would go
  # past both.
  http-request deny deny_status 405 if METH_CONNECT
  http-request del-header X-Weir-Key
  # To WebSocket only: by another protocol a client could ask past weir.
  http-request set-header Upgrade websocket if { req.hdr(upgrade) -i websocket }
  http-request del-header Upgrade unless { req.hdr(upgrade) -i websocket }
${caller(policy)}${dropsUnderscores(policy) ? UNDERSCORES : ''}
  http-request lua.weir
  # Refused: what weir has said, as it has said it.
  ${REFUSE}
${fallBack(policy)}
  # How much is left, on every answer.
${quotaHeaders(policy).map(onEveryAnswer).join('\n')}
  default_backend application

backend application
  server application ${endpoint(upstream)}

# The way to weir, for weir.lua only. Any other port that is free will do, in WEIR_SECTION as well.
listen weir
  bind ${section(setup)}
  http-request deny unless { path ${checkPath(policy)} }
  # Longer than weir takes, and no longer than a client should wait for it.
  timeout connect ${TIMEOUT_MS}ms
  timeout server ${TIMEOUT_MS}ms
  # A request that was not answered may have been counted: it is not sent again.
  retries 0
  # Connections are kept, and shared by all threads. Of those that are not needed, half are closed
  # every second, so that weir, which does it after 10 s, does not come first.
  http-reuse always
  server weir ${server} pool-purge-delay 1s
`;
}

const UNDERSCORES = `
  # Some applications take X_Api_Key for X-Api-Key, which weir would not have seen.
  http-request del-header _ -m sub`;

const REFUSE = [
  'http-request return status 429',
  'content-type application/problem+json lf-string %[var(txn.weir.body)]',
  `hdr Retry-After %[var(${variable('Retry-After')})] hdr Cache-Control no-store`,
  'if { var(txn.weir.status) -m int 429 }',
].join(' ');

const DENY = [
  'http-request return status 429',
  `content-type application/problem+json string '${reducedCapacity()}'`,
  'hdr Retry-After 1 hdr Cache-Control no-store',
  'unless { var(txn.weir.status) -m int 200 }',
].join(' ');

function caller({ trustedHops }: Policy): string {
  return trustedHops === 1
    ? `  # The caller's address is the one that HAProxy sees, whatever its client has sent.
  http-request set-header X-Forwarded-For %[src]`
    : `  # The address that HAProxy sees comes behind those that the proxies before it have set.
  http-request add-header X-Forwarded-For %[src]`;
}

function fallBack({ onError }: Policy): string {
  return onError === 'allow'
    ? '  # Whatever else weir answers, or if it does not: the request passes (onError: allow).'
    : `  # Whatever else weir answers, or if it does not: the request is refused (onError: deny).
  ${DENY}`;
}

function onEveryAnswer(header: string): string {
  const value = `var(${variable(header)})`;
  return `  http-after-response set-header ${header} %[${value}] if { ${value} -m found }`;
}

function endpoint({ host, port }: { host: string; port: number }): string {
  const bare = bareHost(host);
  return bare.includes(':') ? `[${bare}]:${port}` : `${bare}:${port}`;
}

/** One word of a configuration, whatever is in it. */
function word(text: string): string {
  return text.replace(/[\s#'"\\]/g, '\\$&');
}

export function haproxyLua(setup: Setup): string {
  const { policy, weir } = setup;
  const key = weir.needsKey
    ? `
-- The key by which weir knows HAProxy, from its environment.
local key = os.getenv("WEIR_KEY")
if not key then error("WEIR_KEY is not set") end
`
    : '';
  const asked = [...sendingOwn(ownWords(policy), tooLong(policy)), ...address(policy)];
  const text = asked.join('\n');
  const helpers = [
    text.includes('IDENTITY_BYTES_MAX') ? BOUND : '',
    text.includes('lines') ? ONE_LINE : '',
    text.includes('cookies(') ? COOKIES : '',
  ];
  asked.push(...leftOut(policy));
  if (weir.needsKey) asked.push('asked["x-weir-key"] = {key}');
  const said = ['Retry-After', ...quotaHeaders(policy)].map((header) => {
    return `  ["${header.toLowerCase()}"] = "${variable(header)}",`;
  });
  return `\
-- weir.lua, loaded by haproxy.cfg: asks weir whether a request may pass, by what identifies the
-- caller and nothing else of the request.
${key}
local URL = "http://" .. os.getenv("WEIR_SECTION") .. "${checkPath(policy)}"
-- How this begins in an answer of weir about this policy, and in no other.
local POLICY = '"${policy.namespace}'

-- What weir says, and where haproxy.cfg finds it.
local SAID = {
${said.join('\n')}
}
${helpers.join('')}
core.register_action("weir", {"http-req"}, function(txn)
${text.includes('lines') ? '  local lines = txn.http:req_get_headers()\n' : ''}  local asked = {}
${asked.map((line) => `  ${line}`).join('\n')}
  local answer = core.httpclient():get{
    url = URL,
    headers = asked,
  }
  local policy = answer.headers and answer.headers["ratelimit-policy"]
  if not policy or policy[0]:find(POLICY, 1, true) ~= 1 then
    -- haproxy.cfg says what becomes of the request.
    core.Warning("weir answered " .. answer.status)
    return
  end
  txn:set_var("txn.weir.status", answer.status)
  txn:set_var("txn.weir.body", answer.body)
  for header, variable in pairs(SAID) do
    local values = answer.headers[header]
    if values then txn:set_var(variable, values[0]) end
  end
end)
`;
}

const BOUND = `
-- What is longer identifies nobody, for weir either, and is not sent: HAProxy fails to ask with
-- much more, and the request would pass uncounted. So it would with control characters in it. What
-- is sent in its place tells weir that there was something.
local IDENTITY_BYTES_MAX = ${IDENTITY_BYTES_MAX}
local TOO_LONG = ("x"):rep(IDENTITY_BYTES_MAX + 1)
local CONTROL = "[\\0-\\8\\10-\\31]"
`;

const ONE_LINE = `
-- All lines of a header as one, which the application gets as well: it believes what is counted.
local function one_line(txn, lines, name)
  local values = lines[name]
  if not values or #values == 0 then return values and values[0] end
  local all = values[0]
  for i = 1, #values do all = all .. (name == "cookie" and "; " or ", ") .. values[i] end
  txn.http:req_set_header(name, all)
  return all
end
`;

const COOKIES = `
-- The cookies of these names, and none of the others. Of one that comes twice, weir counts neither.
-- A name begins with no blank: for a run of blanks the pattern would take all the time there is.
local function cookies(txn, lines, names)
  local found = {}
  for pair in (one_line(txn, lines, "cookie") or ""):gmatch("[^;]+") do
    if names[pair:match("^[^!-~]*([!-<>-~]+)[^!-~]*=")] then found[#found + 1] = pair end
  end
  return #found > 0 and table.concat(found, ";") or nil
end
`;

/** A target that is a URL with nothing behind its host is one for the root. */
const PATH = '["x-forwarded-uri"] = txn.sf:path():match(".+") or "/",';

/** What a client has chosen by itself, and may have made very long. */
function ownWords(policy: Policy): string[] {
  const headers = namesOf(policy, 'header').map((name) => name.toLowerCase());
  const words = headers.map((name) => `["${name}"] = one_line(txn, lines, "${name}"),`);
  const names = namesOf(policy, 'cookie').map((name) => `["${name}"] = true`);
  if (names.length > 0 && !headers.includes('cookie')) {
    words.push(`["cookie"] = cookies(txn, lines, {${names.join(', ')}}),`);
  }
  if (policy.identify.includes('method')) words.push('["x-forwarded-method"] = txn.sf:method(),');
  if (policy.identify.includes('path')) words.push(PATH);
  return words;
}

/** Any of those words, with nothing in it that weir takes for an identity. */
function tooLong(policy: Policy): string {
  const [header] = namesOf(policy, 'header');
  if (header !== undefined) return `["${header.toLowerCase()}"] = {TOO_LONG}`;
  const [cookie] = namesOf(policy, 'cookie');
  if (cookie !== undefined) return `["cookie"] = {"${cookie}=" .. TOO_LONG}`;
  return `["x-forwarded-${policy.identify.includes('path') ? 'uri' : 'method'}"] = {TOO_LONG}`;
}

/** What HAProxy's client says of itself where it is told nothing: that would be the caller's. */
function leftOut(policy: Policy): string[] {
  const own = ['user-agent', 'accept'];
  const names = namesOf(policy, 'header').map((name) => name.toLowerCase());
  return own
    .filter((name) => names.includes(name))
    .map((name) => `asked["${name}"] = asked["${name}"] or {""}`);
}

function sendingOwn(words: readonly string[], tooLong: string): string[] {
  if (words.length === 0) return [];
  return [
    'local words = {',
    ...words.map((word) => `  ${word}`),
    '}',
    'local bytes, is_text = 0, true',
    'for name, word in pairs(words) do',
    '  asked[name] = {word}',
    '  bytes = bytes + #word',
    '  is_text = is_text and not word:find(CONTROL)',
    'end',
    `if bytes > IDENTITY_BYTES_MAX or not is_text then asked = {${tooLong}} end`,
  ];
}

function address({ identify, trustedHops }: Policy): string[] {
  if (!identify.includes('ip')) return [];
  if (trustedHops === 1) return ['asked["x-forwarded-for"] = {txn.sf:src()}'];
  return [
    '-- The address is at the end: nothing that is written in front of it takes it away.',
    'local chain = one_line(txn, lines, "x-forwarded-for"):sub(-IDENTITY_BYTES_MAX)',
    'asked["x-forwarded-for"] = {(chain:gsub(CONTROL, "_"))}',
  ];
}
