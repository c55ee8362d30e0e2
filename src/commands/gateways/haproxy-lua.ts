/**
 * Prints weir.lua, with which HAProxy checks a request. It sends weir what identifies the client,
 * and stores the response in variables for the rules of haproxy.cfg (`haproxy.ts`).
 */

import { IDENTIFIER_PART_MAX_CHARACTERS, SKIP_PATH_MAX_CHARACTERS } from '../../core/constants.ts';
import type { Policy } from '../../policies/policy.ts';
import {
  checkTarget,
  commonQuotaHeaders,
  identifyingNames,
  isWholeSite,
  readsPath,
  skipHeaders,
} from './common.ts';
import type { GatewaySetup, Route } from './setup.ts';

/** Bound of all parts together. HAProxy's buffer for the check has no room for much more. */
const IDENTITY_BYTES_MAX = IDENTIFIER_PART_MAX_CHARACTERS;
/** Bound of a path to skip, of which each character may be escaped. */
const ESCAPED_PATH_BYTES_MAX = 3 * SKIP_PATH_MAX_CHARACTERS;
/** Bound of X-Forwarded-For: room for the addresses of TRUSTED_HOPS_MAX proxies. */
const FORWARDED_FOR_BYTES_MAX = 2_048;

/** The variable that holds a header of weir's response. */
export function variableName(header: string): string {
  return `txn.weir.${header.toLowerCase().replaceAll('-', '_')}`;
}

export function haproxyLua(setup: GatewaySetup): string {
  const { routes, weir } = setup;
  const key = weir.needsKey
    ? `
-- The API key of HAProxy at weir, from the environment.
local key = os.getenv("WEIR_KEY")
if not key then error("WEIR_KEY is not set") end
`
    : '';
  const needsKey = weir.needsKey ?? false;
  const text = routes.flatMap(({ policy }) => checkHeaderLines(policy, needsKey)).join('\n');
  const helpers = [
    text.includes('IDENTITY_BYTES_MAX') ? LUA_IDENTITY_LIMIT : '',
    text.includes('CONTROL') ? LUA_CONTROL_PATTERN : '',
    text.includes('request_headers') ? LUA_ONE_LINE : '',
    text.includes('cookies(') ? LUA_COOKIES : '',
  ];
  const variables = ['Retry-After', ...commonQuotaHeaders(routes)].map((header) => {
    return `  ["${header.toLowerCase()}"] = "${variableName(header)}",`;
  });
  const parts = isWholeSite(routes)
    ? onePolicy(routes[0].policy, needsKey)
    : policiesByPath(routes, needsKey);
  return `\
-- weir.lua, loaded by haproxy.cfg. It checks a request with weir, and sends weir only the
-- headers that identify the client.
${key}
${parts.constants}

-- Headers of weir's response, and the variables in which haproxy.cfg reads them.
local RESPONSE_VARIABLES = {
${variables.join('\n')}
}
${helpers.join('')}${parts.functions}
core.register_action("weir", {"http-req"}, function(txn)
${parts.request}
  local policy = response.headers and response.headers["ratelimit-policy"]
  if not policy or policy[0]:find(${parts.policyName}, 1, true) ~= 1 then
    -- Without a decision the rules of haproxy.cfg apply onError.
    core.Warning("weir answered " .. response.status)
    return
  end
  txn:set_var("txn.weir.status", response.status)
  txn:set_var("txn.weir.body", response.body)
  for header, variable in pairs(RESPONSE_VARIABLES) do
    local values = response.headers[header]
    if values then txn:set_var(variable, values[0]) end
  end
end)
`;
}

/** The parts of weir.lua that depend on the number of policies. */
interface LuaParts {
  constants: string;
  functions: string;
  /** Lines of the action that send a check. */
  request: string;
  /** The expression for the beginning of the header RateLimit-Policy. */
  policyName: string;
}

function onePolicy(policy: Policy, needsKey: boolean): LuaParts {
  return {
    constants: `\
local URL = "http://" .. os.getenv("WEIR_SECTION") .. "${checkTarget(policy, 'haproxy')}"
-- The header RateLimit-Policy begins with this text only in responses of weir for this policy.
local POLICY = '"${policy.namespace}'`,
    functions: '',
    request: `\
${checkHeaderLines(policy, needsKey)
  .map((line) => `  ${line}`)
  .join('\n')}
  local response = core.httpclient():get{
    url = URL,
    headers = check_headers,
  }`,
    policyName: 'POLICY',
  };
}

function policiesByPath(routes: readonly Route[], needsKey: boolean): LuaParts {
  const longestFirst = routes.toSorted((a, b) => b.prefix.length - a.prefix.length);
  const entries = longestFirst.map(({ policy, prefix }) => {
    const lines = [...checkHeaderLines(policy, needsKey), 'return check_headers'];
    return `\
  {
    prefix = "${prefix}",
    url = WEIR .. "${checkTarget(policy, 'haproxy')}",
    name = '"${policy.namespace}',
    denies_on_error = ${policy.onError === 'deny'},
    check_headers = function(txn)
${lines.map((line) => `      ${line}`).join('\n')}
    end,
  },`;
  });
  return {
    constants: 'local WEIR = "http://" .. os.getenv("WEIR_SECTION")',
    functions: `
-- The longest prefix comes first. The header RateLimit-Policy begins with the name only in
-- responses of weir for this policy.
local POLICIES = {
${entries.join('\n')}
}
${LUA_POLICY_OF}`,
    request: `\
  local checked = policy_of(normalize(txn.sf:path()))
  if not checked then return end
  txn:set_var("txn.weir.denies", checked.denies_on_error)
  local response = core.httpclient():get{
    url = checked.url,
    headers = checked.check_headers(txn),
  }`,
    policyName: 'checked.name',
  };
}

/** Lines that declare `check_headers`, the headers of a check. */
function checkHeaderLines(policy: Policy, needsKey: boolean): string[] {
  const lines = [
    ...identityLines(identityFields(policy), oversizedIdentity(policy)),
    ...addressLines(policy),
  ];
  const usesRequestHeaders = lines.join('\n').includes('request_headers');
  return [
    ...(usesRequestHeaders ? ['local request_headers = txn.http:req_get_headers()'] : []),
    'local check_headers = {}',
    ...lines,
    ...emptyHeaderLines(policy),
    ...skipLines(policy),
    ...(needsKey ? ['check_headers["x-weir-key"] = {key}'] : []),
  ];
}

const LUA_POLICY_OF = `
-- The path as an application may read it: decoded, without repeated slashes and dot segments.
local function normalize(path)
  path = path:gsub("%%(%x%x)", function(hex) return string.char(tonumber(hex, 16)) end)
  local segments = {}
  for segment in path:gmatch("[^/]+") do
    if segment == ".." then
      segments[#segments] = nil
    elseif segment ~= "." then
      segments[#segments + 1] = segment
    end
  end
  local tail = #segments > 0 and path:sub(-1) == "/" and "/" or ""
  return "/" .. table.concat(segments, "/") .. tail
end

local function policy_of(path)
  for _, policy in ipairs(POLICIES) do
    if path:sub(1, #policy.prefix) == policy.prefix then return policy end
  end
end
`;

const LUA_IDENTITY_LIMIT = `
-- weir accepts no identity longer than this. HAProxy's check would fail with a much longer one, and
-- onError would apply. Send a placeholder instead: weir counts it as an invalid identity.
local IDENTITY_BYTES_MAX = ${IDENTITY_BYTES_MAX}
local TOO_LONG = ("x"):rep(IDENTITY_BYTES_MAX + 1)
`;

const LUA_CONTROL_PATTERN = `
-- weir does not respond to a request head with control characters.
local CONTROL = "[\\0-\\8\\10-\\31]"
`;

const LUA_ONE_LINE = `
-- Joins repeated headers into one. The application receives the same value that weir counts.
local function one_line(txn, request_headers, name)
  local values = request_headers[name]
  if not values or #values == 0 then return values and values[0] end
  local all = values[0]
  for i = 1, #values do all = all .. (name == "cookie" and "; " or ", ") .. values[i] end
  txn.http:req_set_header(name, all)
  return all
end
`;

const LUA_COOKIES = `
-- Only the cookies with these names. weir accepts neither of two cookies with the same name.
-- The pattern matches no blank in a name: a long run of blanks would take quadratic time.
local function cookies(txn, request_headers, names)
  local found = {}
  for pair in (one_line(txn, request_headers, "cookie") or ""):gmatch("[^;]+") do
    if names[pair:match("^[^!-~]*([!-<>-~]+)[^!-~]*=")] then found[#found + 1] = pair end
  end
  return #found > 0 and table.concat(found, ";") or nil
end
`;

/** An absolute URL without a path is a request for the root. */
const LUA_PATH_FIELD = '["x-forwarded-uri"] = txn.sf:path():match(".+") or "/",';

/** The parts of an identity that the client chooses, and whose length it controls. */
function identityFields(policy: Policy): string[] {
  const headers = identifyingNames(policy, 'header').map((name) => name.toLowerCase());
  const fields = headers.map((name) => `["${name}"] = one_line(txn, request_headers, "${name}"),`);
  const names = identifyingNames(policy, 'cookie').map((name) => `["${name}"] = true`);
  if (names.length > 0 && !headers.includes('cookie')) {
    fields.push(`["cookie"] = cookies(txn, request_headers, {${names.join(', ')}}),`);
  }
  if (policy.identify.includes('method')) fields.push('["x-forwarded-method"] = txn.sf:method(),');
  if (policy.identify.includes('path')) fields.push(LUA_PATH_FIELD);
  return fields;
}

/** One of these fields, with a value that weir rejects as an identity. */
function oversizedIdentity(policy: Policy): string {
  const [header] = identifyingNames(policy, 'header');
  if (header !== undefined) return `["${header.toLowerCase()}"] = {TOO_LONG}`;
  const [cookie] = identifyingNames(policy, 'cookie');
  if (cookie !== undefined) return `["cookie"] = {"${cookie}=" .. TOO_LONG}`;
  return `["x-forwarded-${policy.identify.includes('path') ? 'uri' : 'method'}"] = {TOO_LONG}`;
}

/** Headers that HAProxy's HTTP client would otherwise send with values of its own. */
function emptyHeaderLines(policy: Policy): string[] {
  const defaults = ['user-agent', 'accept'];
  const names = identifyingNames(policy, 'header').map((name) => name.toLowerCase());
  return defaults
    .filter((name) => names.includes(name))
    .map((name) => `check_headers["${name}"] = check_headers["${name}"] or {""}`);
}

function identityLines(fields: readonly string[], oversized: string): string[] {
  if (fields.length === 0) return [];
  return [
    'local identity = {',
    ...fields.map((field) => `  ${field}`),
    '}',
    'local bytes, is_text = 0, true',
    'for name, value in pairs(identity) do',
    '  check_headers[name] = {value}',
    '  bytes = bytes + #value',
    '  is_text = is_text and not value:find(CONTROL)',
    'end',
    `if bytes > IDENTITY_BYTES_MAX or not is_text then check_headers = {${oversized}} end`,
  ];
}

/** Fields of requests to skip. Of the headers of a preflight, weir reads only the presence. */
function skipLines(policy: Policy): string[] {
  const headers = skipHeaders(policy);
  const conditions = headers.map((name) => `txn.sf:req_hdr("${name}") ~= ""`);
  const preflight = [
    `if ${['txn.sf:method() == "OPTIONS"', ...conditions].join(' and ')} then`,
    '  check_headers["x-forwarded-method"] = {"OPTIONS"}',
    ...headers.map((name) => `  check_headers["${name}"] = {"sent"}`),
    'end',
  ];
  const path = [
    'local path = txn.sf:path()',
    `if #path <= ${ESCAPED_PATH_BYTES_MAX} then check_headers["x-forwarded-uri"] = {path} end`,
  ];
  return [
    ...(headers.length > 0 ? preflight : []),
    ...(readsPath(policy) && !policy.identify.includes('path') ? path : []),
  ];
}

function addressLines({ identify, trustedHops }: Policy): string[] {
  if (!identify.includes('ip')) return [];
  if (trustedHops === 1) return ['check_headers["x-forwarded-for"] = {txn.sf:src()}'];
  return [
    '-- Keep the end, which has the trusted addresses: a client controls the length of the rest.',
    'local chain = one_line(txn, request_headers, "x-forwarded-for")',
    `chain = chain:sub(-${FORWARDED_FOR_BYTES_MAX})`,
    'check_headers["x-forwarded-for"] = {(chain:gsub(CONTROL, "_"))}',
  ];
}
