/**
 * weir.lua, by which HAProxy asks weir: what identifies the caller goes there, and what weir says
 * is left in variables, for the rules in haproxy.cfg (`haproxy.ts`).
 */

import { IDENTITY_PART_MAX_CHARACTERS } from '../../core/constants.ts';
import type { Policy } from '../../policies/policy.ts';
import { checkPath, identifyingNames, quotaHeaders } from './common.ts';
import type { GatewaySetup } from './setup.ts';

/** Of all parts together; to ask with much more HAProxy has no room. */
const IDENTITY_BYTES_MAX = IDENTITY_PART_MAX_CHARACTERS;
/** Of all that proxies say of addresses; more than enough for as many as are ever believed. */
const FORWARDED_FOR_BYTES_MAX = 2_048;

/** Where Lua leaves what weir says in a header. */
export function variableName(header: string): string {
  return `txn.weir.${header.toLowerCase().replaceAll('-', '_')}`;
}

export function haproxyLua(setup: GatewaySetup): string {
  const { policy, weir } = setup;
  const key = weir.needsKey
    ? `
-- The key by which weir knows HAProxy, from its environment.
local key = os.getenv("WEIR_KEY")
if not key then error("WEIR_KEY is not set") end
`
    : '';
  const asked = [
    ...identityLines(identityFields(policy), oversizedIdentity(policy)),
    ...addressLines(policy),
  ];
  const text = asked.join('\n');
  const helpers = [
    text.includes('IDENTITY_BYTES_MAX') ? LUA_IDENTITY_LIMIT : '',
    text.includes('CONTROL') ? LUA_CONTROL_PATTERN : '',
    text.includes('lines') ? LUA_ONE_LINE : '',
    text.includes('cookies(') ? LUA_COOKIES : '',
  ];
  asked.push(...emptyHeaderLines(policy));
  if (weir.needsKey) asked.push('asked["x-weir-key"] = {key}');
  const said = ['Retry-After', ...quotaHeaders(policy)].map((header) => {
    return `  ["${header.toLowerCase()}"] = "${variableName(header)}",`;
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

const LUA_IDENTITY_LIMIT = `
-- What is longer identifies nobody, for weir either, and is not sent: HAProxy fails to ask with
-- much more, and the request would pass uncounted. What is sent in its place tells weir that there
-- was something.
local IDENTITY_BYTES_MAX = ${IDENTITY_BYTES_MAX}
local TOO_LONG = ("x"):rep(IDENTITY_BYTES_MAX + 1)
`;

const LUA_CONTROL_PATTERN = `
-- weir does not answer a head with control characters in it.
local CONTROL = "[\\0-\\8\\10-\\31]"
`;

const LUA_ONE_LINE = `
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

const LUA_COOKIES = `
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
const LUA_PATH_FIELD = '["x-forwarded-uri"] = txn.sf:path():match(".+") or "/",';

/** What a client has chosen by itself, and may have made very long. */
function identityFields(policy: Policy): string[] {
  const headers = identifyingNames(policy, 'header').map((name) => name.toLowerCase());
  const words = headers.map((name) => `["${name}"] = one_line(txn, lines, "${name}"),`);
  const names = identifyingNames(policy, 'cookie').map((name) => `["${name}"] = true`);
  if (names.length > 0 && !headers.includes('cookie')) {
    words.push(`["cookie"] = cookies(txn, lines, {${names.join(', ')}}),`);
  }
  if (policy.identify.includes('method')) words.push('["x-forwarded-method"] = txn.sf:method(),');
  if (policy.identify.includes('path')) words.push(LUA_PATH_FIELD);
  return words;
}

/** Any of those words, with nothing in it that weir takes for an identity. */
function oversizedIdentity(policy: Policy): string {
  const [header] = identifyingNames(policy, 'header');
  if (header !== undefined) return `["${header.toLowerCase()}"] = {TOO_LONG}`;
  const [cookie] = identifyingNames(policy, 'cookie');
  if (cookie !== undefined) return `["cookie"] = {"${cookie}=" .. TOO_LONG}`;
  return `["x-forwarded-${policy.identify.includes('path') ? 'uri' : 'method'}"] = {TOO_LONG}`;
}

/** What HAProxy's client says of itself where it is told nothing: that would be the caller's. */
function emptyHeaderLines(policy: Policy): string[] {
  const own = ['user-agent', 'accept'];
  const names = identifyingNames(policy, 'header').map((name) => name.toLowerCase());
  return own
    .filter((name) => names.includes(name))
    .map((name) => `asked["${name}"] = asked["${name}"] or {""}`);
}

function identityLines(fields: readonly string[], oversized: string): string[] {
  if (fields.length === 0) return [];
  return [
    'local words = {',
    ...fields.map((word) => `  ${word}`),
    '}',
    'local bytes, is_text = 0, true',
    'for name, word in pairs(words) do',
    '  asked[name] = {word}',
    '  bytes = bytes + #word',
    '  is_text = is_text and not word:find(CONTROL)',
    'end',
    `if bytes > IDENTITY_BYTES_MAX or not is_text then asked = {${oversized}} end`,
  ];
}

function addressLines({ identify, trustedHops }: Policy): string[] {
  if (!identify.includes('ip')) return [];
  if (trustedHops === 1) return ['asked["x-forwarded-for"] = {txn.sf:src()}'];
  return [
    '-- The address is at the end: nothing that is written in front of it takes it away.',
    'local chain = one_line(txn, lines, "x-forwarded-for")',
    `chain = chain:sub(-${FORWARDED_FOR_BYTES_MAX})`,
    'asked["x-forwarded-for"] = {(chain:gsub(CONTROL, "_"))}',
  ];
}
