// weir.mjs for express: checks each request with the policy orders of weir, before any
// route runs.
//
//   import { limit } from "./weir.mjs";
//   app.use(limit);
//
// express determines the address of the client. Behind a proxy: app.set('trust proxy', 1).

import { Agent, get } from 'node:http';

const OPTIONS = {
  url: 'http://127.0.0.1:7072',
  namespace: 'orders',
  identify: 'ip',
  onError: 'allow',
};

/**
 * A circuit breaker. After many checks in a row without a response, only one check per interval
 * waits for weir. So an unresponsive weir does not delay each request by the timeout.
 */

const TIMEOUTS_MAX = 64;
const PROBE_INTERVAL_MS = 1_000;

class Breaker {
  #timeouts = 0;
  #isProbeSent = false;
  get isOpen() {
    return this.#timeouts >= TIMEOUTS_MAX;
  }
  /** While it is open: whether this check may be sent, to find out whether weir responds again. */
  takeProbe() {
    if (this.#isProbeSent)
      return false;
    this.#isProbeSent = true;
    const timer = setTimeout(() => {
      this.#isProbeSent = false;
    }, PROBE_INTERVAL_MS);
    timer.unref();
    return true;
  }
  countTimeout() {
    this.#timeouts++;
  }
  countResponse() {
    this.#timeouts = 0;
  }
}

/**
 * A timeout that allows for a busy process. Such a process reads no response, and a single timer
 * would end before the response is read. So the timeout has five steps, and one turn of the event
 * loop after them.
 */

const STEPS = 5;

/** @returns a function that cancels it */
function startDeadline(timeoutMs, onTimeout) {
  let timer;
  let steps = STEPS;
  const step = () => {
    timer = steps-- > 0 ? setTimeout(step, timeoutMs / STEPS) : setTimeout(onTimeout);
  };
  step();
  return () => clearTimeout(timer);
}

/** Reads options. An invalid one is a TypeError when the application starts, not at a request. */

/** @throws TypeError for an option that does not exist */
function requireKnownOptions(options, known) {
  for (const name of Object.keys(options)) {
    if (!known.includes(name))
      throw new TypeError(`"${name}" is none of ${known.join(', ')}`);
  }
}

/** @param isValid whether the value is accepted */
function requireOption(isValid, name, accepted, value) {
  if (!isValid)
    throw new TypeError(`"${name}" must be ${accepted}; got ${formatOption(value)}`);
}

function readTimeout(value = 2_000) {
  const isValid = typeof value === 'number' && value >= 1 && value <= 60_000;
  requireOption(isValid, 'timeoutMs', 'a number of milliseconds from 1 to 60000', value);
  return value;
}

function readOnError(value = 'allow') {
  requireOption(value === 'allow' || value === 'deny', 'onError', "'allow' or 'deny'", value);
  return value;
}

/** @param value is a secret, so errors do not show it. Blanks around it come from files */
function readKey(value) {
  const key = typeof value === 'string' ? value.trim() : '';
  if (/^[!-~]+$/.test(key))
    return key;
  const received = typeof value === 'string' ? 'another text' : formatOption(value);
  throw new TypeError(`"key" must be an API key of weir, in printable ASCII; got ${received}`);
}

/** A URL as an error may show it: it may contain a password before an @. */
function shownUrl(value) {
  return String(value).includes('@') ? 'a URL with a user' : value;
}

function formatOption(value) {
  if (value === undefined)
    return 'nothing';
  return typeof value === 'string' ? JSON.stringify(value) : String(value);
}

/**
 * Sends a check for a request to weir, as a gateway does: weir has the limit in a policy, and gets
 * the headers that identify the client. docs/gateways/contract.md describes the protocol.
 */

const CHECK_OPTIONS = [
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
const PART_RULE = "one or more of 'ip', 'ip:header:<name>', 'method', 'path', 'header:<name>' and 'cookie:<name>'";

// Headers for the client: of every decision, and more for a denial.
const QUOTA_HEADERS = ['RateLimit-Policy', 'RateLimit'];
const LEGACY_HEADERS = ['X-RateLimit-Limit', 'X-RateLimit-Remaining', 'X-RateLimit-Reset'];
const DENIAL_HEADERS = ['Retry-After', 'Cache-Control', 'Content-Type'];

// Decisions if weir has not decided.
const ALLOWED = { status: 200, headers: {}, body: '' };
const DENIED = {
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
const TOO_LARGE = { status: 431, headers: {}, body: '' };
const INVALID = { status: 400, headers: {}, body: '' };

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
function gatewayCheck(gateway, options) {
  requireKnownOptions(options, CHECK_OPTIONS);
  const target = {
    ...readUrl(options.url),
    path: `/v1/check/${readNamespace(options.namespace)}?gateway=${gateway}`,
    agent: new Agent({ keepAlive: true, timeout: IDLE_MS, maxSockets: CONNECTIONS_MAX }),
  };
  const identity = readIdentity(options);
  const timeoutMs = readTimeout(options.timeoutMs);
  const fallback = readOnError(options.onError) === 'allow' ? ALLOWED : DENIED;
  const { legacyHeaders = false } = options;
  requireOption(typeof legacyHeaders === 'boolean', 'legacyHeaders', 'true or false', legacyHeaders);
  const quotaHeaders = legacyHeaders ? [...QUOTA_HEADERS, ...LEGACY_HEADERS] : QUOTA_HEADERS;
  const breaker = new Breaker();
  return (request) => {
    const headers = identity(request);
    const values = Object.values(headers).join();
    if (values.length > IDENTITY_MAX)
      return TOO_LARGE;
    if (INVALID_CHARACTER.test(values))
      return INVALID;
    const isProbe = breaker.isOpen;
    if (isProbe && !breaker.takeProbe())
      return fallback;
    return new Promise((resolve) => {
      let cancelDeadline = () => { };
      const settle = (decision) => {
        cancelDeadline();
        resolve(decision);
      };
      const fail = ({ message }) => {
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
        response.on('data', (text) => {
          body += text;
        });
        response.on('end', () => settle(readDecision(response, body) ?? fallback));
      });
    });
  };
  /** @returns undefined if the response is not a decision */
  function readDecision(response, body) {
    const { statusCode: status } = response;
    if (status !== 200 && status !== 429) {
      process.emitWarning(`weir answered ${status}`);
      return undefined;
    }
    const headers = {};
    for (const name of status === 200 ? quotaHeaders : [...quotaHeaders, ...DENIAL_HEADERS]) {
      const value = response.headers[name.toLowerCase()];
      if (typeof value === 'string')
        headers[name] = value;
    }
    return { status, headers, body };
  }
}

function readUrl(value) {
  const text = typeof value === 'string' ? value : '';
  const [, socketPath] = /^unix:(\/.+)$/.exec(text) ?? [];
  if (socketPath !== undefined)
    return { socketPath };
  const url = URL.canParse(text) ? new URL(text) : undefined;
  const isPlain = url?.protocol === 'http:' && url.href === `${url.origin}/`;
  const accepted = 'a URL such as http://127.0.0.1:7072, or unix: and the path of a socket';
  requireOption(isPlain, 'url', accepted, shownUrl(value));
  // An IPv6 address has brackets in a URL only.
  return { host: url.hostname.replace(/^\[(.*)\]$/, '$1'), port: Number(url.port || 80) };
}

function readNamespace(value) {
  const isValid = typeof value === 'string' && /^[\w~][\w.~:@-]{0,511}$/.test(value);
  requireOption(isValid, 'namespace', 'the namespace of a policy of weir', value);
  return value;
}

/** The headers that the policy reads; weir gets no others. */
function readIdentity(options) {
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
    const headers = { ...key };
    if (parts.includes('ip'))
      headers['X-Forwarded-For'] = addressOf(request, trustedHops);
    if (parts.includes('method'))
      headers['X-Forwarded-Method'] = request.method ?? '';
    if (parts.includes('path') || (skipsPaths && SKIPPABLE_PATH.test(pathOf(request)))) {
      headers['X-Forwarded-Uri'] = pathOf(request);
    }
    if (skipsPreflights && request.method === 'OPTIONS')
      addPreflight(headers, request);
    // Node sends no header for [].
    for (const name of headerNames)
      headers[name] = request.headers[name] ?? [];
    if (cookieNames.length > 0)
      headers.Cookie = cookiesOf(request, cookieNames);
    return headers;
  };
}

/** By these weir recognizes a preflight of CORS, which the policy skips. */
function addPreflight(headers, request) {
  headers['X-Forwarded-Method'] = request.method;
  for (const name of ['origin', 'access-control-request-method']) {
    headers[name] = request.headers[name] ?? [];
  }
}

function isPart(part) {
  const parts = /^(?:ip|method|path|(?:(?:ip:)?header|cookie):[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128})$/;
  return typeof part === 'string' && parts.test(part);
}

function namesOf(parts, prefix) {
  return parts.filter((part) => part.startsWith(prefix)).map((part) => part.slice(prefix.length));
}

/** With several hops: all addresses, and the client's is the n-th from the right. */
function addressOf(request, trustedHops) {
  const { remoteAddress } = request.socket;
  // The value from the proxies in front, with the address of the connection appended.
  if (trustedHops > 1)
    return [request.headers['x-forwarded-for'], remoteAddress].join();
  // A client that has disconnected has no address. weir counts it as unidentified.
  return request.ip ?? remoteAddress ?? 'disconnected';
}

function pathOf({ originalUrl, url }) {
  return (originalUrl ?? url ?? '').split('?', 1)[0];
}

/** Only the cookies with these names. */
function cookiesOf({ headers }, names) {
  const found = [];
  for (const pair of (headers.cookie ?? '').split(';')) {
    const [name, ...value] = pair.split('=');
    if (names.includes(name.trim()))
      found.push([name.trim(), ...value].join('='));
  }
  return found;
}

/** What the middleware for Express does with a decision. */

function expressMiddleware(decide) {
  return async (request, response, next) => {
    let decision;
    try {
      decision = await decide(request, response);
    }
    catch (error) {
      // Express 4, connect and node:http would leave a rejection unhandled, which ends the process.
      next(error);
      return;
    }
    const { status, headers, body } = decision;
    // Something else has answered in the meantime, for example a timeout of the application.
    if (response.headersSent)
      return;
    for (const [name, value] of Object.entries(headers))
      response.setHeader(name, value);
    if (status === 200) {
      next();
      return;
    }
    response.statusCode = status;
    response.end(body);
  };
}

export const limit = expressMiddleware(gatewayCheck('express', OPTIONS));
