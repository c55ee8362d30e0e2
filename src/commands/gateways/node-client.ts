/**
 * Prints weir.mjs, a middleware for express or a hook for fastify. It checks each request with weir
 * before any route runs. If weir fails, it applies onError of the policy.
 */

import type { Gateway } from '../../policies/gateways.ts';
import type { Policy } from '../../policies/policy.ts';
import { reducedCapacity } from '../../policies/quota.ts';
import { bareHost, checkTarget, identifyingNames, quotaHeaders } from './common.ts';
import { type GatewaySetup, TIMEOUT_MS, type WeirAddress } from './setup.ts';

export function express(setup: GatewaySetup): string {
  return `\
${head(setup, 'express', 'app.use(limit);', "app.set('trust proxy', 1)")}
${weirClientSource(setup, 'express')}
export async function limit(request, response, next) {
  const { status, headers, body } = await checkRequest(identity(request));
  for (const [name, value] of Object.entries(headers)) response.setHeader(name, value);
  if (status === 200) return next();
  response.statusCode = status;
  response.end(body);
}
`;
}

export function fastify(setup: GatewaySetup): string {
  return `\
${head(setup, 'fastify', "app.addHook('onRequest', limit);", 'Fastify({ trustProxy: 1 })')}
${weirClientSource(setup, 'fastify')}
export async function limit(request, reply) {
  const { status, headers, body } = await checkRequest(identity(request));
  reply.headers(headers);
  // As bytes: fastify would add a charset to the content type of a string.
  if (status !== 200) return reply.code(status).send(Buffer.from(body));
}
`;
}

/** @param proxySetting the setting with which the framework trusts one proxy */
function head({ routes }: GatewaySetup, name: string, use: string, proxySetting: string): string {
  const [{ policy }] = routes;
  const usesRequestIp = policy.identify.includes('ip') && policy.trustedHops === 1;
  const proxyNote = `
//
// ${name} determines the address of the client. Behind a proxy: ${proxySetting}.`;
  return `\
// weir.mjs for ${name}: checks each request with the policy ${policy.namespace} of weir, before any
// route runs.
//
//   import { limit } from "./weir.mjs";
//   ${use}${usesRequestIp ? proxyNote : ''}
`;
}

/** Everything except the function that the framework calls. */
function weirClientSource({ routes, weir }: GatewaySetup, gateway: Gateway): string {
  const [{ policy }] = routes;
  const key = weir.needsKey
    ? `
// The API key of this application at weir.
const KEY = process.env.WEIR_KEY?.trim();
if (!KEY) throw new Error('WEIR_KEY is not set');
`
    : '';
  const rows = identityRows(policy);
  if (weir.needsKey) rows.push("'X-Weir-Key': KEY,");
  return `import { Agent, get } from 'node:http';

const WEIR = { ${connectionOptions(weir)}, path: '${checkTarget(policy, gateway)}' };
// The agent closes an idle connection after 5 s; weir closes it after 10 s. A flood queues for the
// connections, and the timeout does not include that wait.
const agent = new Agent({ keepAlive: true, timeout: 5_000, maxSockets: 64 });
// Long enough for responses that a flood delays on a busy machine.
const TIMEOUT_MS = ${TIMEOUT_MS};
// After this many checks in a row without a response, only one check per interval waits for weir.
const FAILURES_MAX = 64;
const PROBE_INTERVAL_MS = 1_000;
let failures = 0;
let isProbeSent = false;
${fallbackSource(policy)}
${key}
// Headers for the client: of every decision, and more for a denial.
const ALLOWED_HEADERS = [
${quotaHeaders(policy)
  .map((name) => `  ${quoted(name)},`)
  .join('\n')}
];
const DENIED_HEADERS = [...ALLOWED_HEADERS, 'Retry-After', 'Cache-Control', 'Content-Type'];

// The headers that identify the client; weir receives no others. Node sends no header for [].
function identity(request) {
  return {
${rows.map((row) => `    ${row}`).join('\n')}
  };
}
${cookieNames(policy).length > 0 ? COOKIES_SOURCE : ''}
// weir accepts no identity longer than this. The client caused that, so onError does not apply.
const IDENTITY_MAX = 16_384;
const TOO_LARGE = { status: 431, headers: {}, body: '' };

// Sends each check once: weir may have counted a check without a response.
function checkRequest(headers) {
  if (Object.values(headers).join().length > IDENTITY_MAX) return TOO_LARGE;
  const isProbe = failures >= FAILURES_MAX;
  if (isProbe) {
    if (isProbeSent) return FALLBACK;
    isProbeSent = true;
    setTimeout(() => {
      isProbeSent = false;
    }, PROBE_INTERVAL_MS).unref();
  }
  return new Promise((resolve) => {
    const check = get({ ...WEIR, agent, headers });
    let timer;
    check.on('socket', () => {
      // Other checks have failed while this one waited for a connection.
      if (!isProbe && failures >= FAILURES_MAX) {
        check.destroy();
        return;
      }
      // Wait in steps: while this process is busy, it reads no response, and a single timer would
      // end first.
      let steps = 5;
      const step = () => {
        timer = steps-- > 0 ? setTimeout(step, TIMEOUT_MS / 5) : setTimeout(giveUp);
      };
      step();
    });
    const giveUp = () => {
      failures++;
      check.destroy();
    };
    const settle = (decision) => {
      clearTimeout(timer);
      resolve(decision);
    };
    const fail = ({ message }) => {
      process.emitWarning(\`weir has not answered: \${message}\`);
      settle(FALLBACK);
    };
    check.on('error', fail);
    check.on('response', (response) => {
      failures = 0;
      let body = '';
      response.setEncoding('utf8');
      response.on('error', fail);
      response.on('data', (text) => {
        body += text;
      });
      response.on('end', () => settle(parseDecision(response, body)));
    });
  });
}

function parseDecision({ statusCode: status, headers: responseHeaders }, body) {
  if (status !== 200 && status !== 429) {
    process.emitWarning(\`weir answered \${status}\`);
    return FALLBACK;
  }
  const headers = {};
  for (const name of status === 200 ? ALLOWED_HEADERS : DENIED_HEADERS) {
    const key = name.toLowerCase();
    if (key in responseHeaders) headers[name] = responseHeaders[key];
  }
  return { status, headers, body };
}
`;
}

function connectionOptions(weir: WeirAddress): string {
  if ('socket' in weir) return `socketPath: ${quoted(weir.socket)}`;
  return `host: ${quoted(bareHost(weir.host))}, port: ${weir.port}`;
}

function fallbackSource({ onError }: Policy): string {
  return onError === 'allow'
    ? `// onError: allow. Without a decision of weir the request is allowed.
const FALLBACK = { status: 200, headers: {}, body: '' };`
    : `// onError: deny. Without a decision of weir the request is denied.
const FALLBACK = {
  status: 429,
  headers: {
    'Retry-After': '1',
    'Cache-Control': 'no-store',
    'Content-Type': 'application/problem+json',
  },
  body: ${quoted(reducedCapacity())},
};`;
}

/** Headers of a check, one per line. */
function identityRows(policy: Policy): string[] {
  const { identify } = policy;
  const rows = identify.includes('ip') ? addressRows(policy) : [];
  if (identify.includes('method')) rows.push(`'X-Forwarded-Method': request.method,`);
  if (identify.includes('path')) {
    rows.push(`'X-Forwarded-Uri': request.originalUrl.split('?', 1)[0],`);
  }
  const headers = identifyingNames(policy, 'header').map((name) => quoted(name.toLowerCase()));
  rows.push(...headers.map((name) => `${name}: request.headers[${name}] ?? [],`));
  const names = cookieNames(policy).map(quoted);
  if (names.length > 0) rows.push(`Cookie: cookies(request, [${names.join(', ')}]),`);
  return rows;
}

function addressRows({ trustedHops }: Policy): string[] {
  if (trustedHops === 1) {
    return [
      '// A client that has disconnected has no address. weir counts it as unidentified.',
      `'X-Forwarded-For': request.ip ?? 'disconnected',`,
    ];
  }
  return [
    '// The value from the proxies in front, with the address of the connection appended.',
    `'X-Forwarded-For': [request.headers['x-forwarded-for'], request.socket.remoteAddress].join(),`,
  ];
}

/** The cookies that identify; none if the policy reads the whole header Cookie. */
function cookieNames(policy: Policy): string[] {
  const readsAllCookies = identifyingNames(policy, 'header').some(
    (name) => name.toLowerCase() === 'cookie',
  );
  return readsAllCookies ? [] : identifyingNames(policy, 'cookie');
}

function quoted(text: string): string {
  return `'${text.replace(/[\\']/g, '\\$&')}'`;
}

const COOKIES_SOURCE = `
// Only the cookies with these names.
function cookies({ headers }, names) {
  const found = [];
  for (const pair of (headers.cookie ?? '').split(';')) {
    const [name, ...value] = pair.split('=');
    if (names.includes(name.trim())) found.push([name.trim(), ...value].join('='));
  }
  return found;
}
`;
