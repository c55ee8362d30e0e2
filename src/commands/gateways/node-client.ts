/**
 * What the modules for express and fastify have in common: how an application asks weir by itself.
 * Where weir fails, its answer is the one that the policy says.
 */

import type { Policy } from '../../policies/policy.ts';
import { reducedCapacity } from '../../policies/quota.ts';
import { bareHost, checkPath, identifyingNames, quotaHeaders } from './common.ts';
import { type GatewaySetup, TIMEOUT_MS, type WeirAddress } from './setup.ts';

/** All but the function that the framework calls. */
export function weirClientSource({ policy, weir }: GatewaySetup): string {
  const key = weir.needsKey
    ? `
// The key by which weir knows this application.
const KEY = process.env.WEIR_KEY?.trim();
if (!KEY) throw new Error('WEIR_KEY is not set');
`
    : '';
  const rows = identityRows(policy);
  if (weir.needsKey) rows.push("'X-Weir-Key': KEY,");
  return `import { Agent, get } from 'node:http';

const WEIR = { ${connectionOptions(weir)}, path: '${checkPath(policy)}' };
// Connections are kept, and closed after 5 s without a request: weir does it after 10 s. A flood
// waits for one of so many, and that time does not count as weir's.
const agent = new Agent({ keepAlive: true, timeout: 5_000, maxSockets: 64 });
// On one of them. Longer than a flood delays an answer on a busy machine.
const TIMEOUT_MS = ${TIMEOUT_MS};
// Where so many in a row had no answer, weir hangs: then one request in so long waits for it.
const HANGS_AFTER = 64;
const TRIED_EVERY_MS = 1_000;
let unanswered = 0;
let isTried = false;
${fallbackSource(policy)}
${key}
// How much is left, on every answer; on a refusal, what weir says of it as well.
const ADMITTED = [
${quotaHeaders(policy)
  .map((name) => `  ${quoted(name)},`)
  .join('\n')}
];
const REFUSED = [...ADMITTED, 'Retry-After', 'Cache-Control', 'Content-Type'];

// What identifies the caller, and nothing else of the request. Where it is [], nothing is sent.
function identity(request) {
  return {
${rows.map((row) => `    ${row}`).join('\n')}
  };
}
${cookieNames(policy).length > 0 ? COOKIES_SOURCE : ''}
// Of more weir takes no notice: that is the client's own doing, and lets nobody in.
const IDENTITY_MAX = 16_384;
const TOO_LARGE = { status: 431, headers: {}, body: '' };

// A request that was not answered may have been counted: it is not sent again.
function ask(headers) {
  if (Object.values(headers).join().length > IDENTITY_MAX) return TOO_LARGE;
  const isTrial = unanswered >= HANGS_AFTER;
  if (isTrial) {
    if (isTried) return FALL_BACK;
    isTried = true;
    setTimeout(() => {
      isTried = false;
    }, TRIED_EVERY_MS).unref();
  }
  return new Promise((resolve) => {
    const call = get({ ...WEIR, agent, headers });
    let timer;
    call.on('socket', () => {
      // Weir was found to hang while this one waited for a connection.
      if (!isTrial && unanswered >= HANGS_AFTER) {
        call.destroy();
        return;
      }
      // In steps, each in a turn of its own: while this process is busy, no answer is read.
      let steps = 5;
      const step = () => {
        timer = steps-- > 0 ? setTimeout(step, TIMEOUT_MS / 5) : setTimeout(giveUp);
      };
      step();
    });
    const giveUp = () => {
      unanswered++;
      call.destroy();
    };
    const settle = (decision) => {
      clearTimeout(timer);
      resolve(decision);
    };
    const fail = ({ message }) => {
      process.emitWarning(\`weir has not answered: \${message}\`);
      settle(FALL_BACK);
    };
    call.on('error', fail);
    call.on('response', (answer) => {
      unanswered = 0;
      let body = '';
      answer.setEncoding('utf8');
      answer.on('error', fail);
      answer.on('data', (text) => {
        body += text;
      });
      answer.on('end', () => settle(decisionOf(answer, body)));
    });
  });
}

function decisionOf({ statusCode: status, headers: said }, body) {
  if (status !== 200 && status !== 429) {
    process.emitWarning(\`weir answered \${status}\`);
    return FALL_BACK;
  }
  const headers = {};
  for (const name of status === 200 ? ADMITTED : REFUSED) {
    if (name.toLowerCase() in said) headers[name] = said[name.toLowerCase()];
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
    ? `// Whatever else weir answers, or if it does not: the request passes (onError: allow).
const FALL_BACK = { status: 200, headers: {}, body: '' };`
    : `// Whatever else weir answers, or if it does not: the request is refused (onError: deny).
const FALL_BACK = {
  status: 429,
  headers: {
    'Retry-After': '1',
    'Cache-Control': 'no-store',
    'Content-Type': 'application/problem+json',
  },
  body: ${quoted(reducedCapacity())},
};`;
}

/** Headers to ask with, a line each. */
function identityRows(policy: Policy): string[] {
  const { identify } = policy;
  const rows = identify.includes('ip') ? addressRows(policy) : [];
  if (identify.includes('method')) rows.push(`'X-Forwarded-Method': request.method,`);
  if (identify.includes('path'))
    rows.push(`'X-Forwarded-Uri': request.originalUrl.split('?', 1)[0],`);
  const headers = identifyingNames(policy, 'header').map((name) => quoted(name.toLowerCase()));
  rows.push(...headers.map((name) => `${name}: request.headers[${name}] ?? [],`));
  const names = cookieNames(policy).map(quoted);
  if (names.length > 0) rows.push(`Cookie: cookies(request, [${names.join(', ')}]),`);
  return rows;
}

function addressRows({ trustedHops }: Policy): string[] {
  if (trustedHops === 1) {
    return [
      '// Who has gone has no address, and is counted with all whom weir cannot tell apart.',
      `'X-Forwarded-For': request.ip ?? 'gone',`,
    ];
  }
  return [
    '// The address of who has connected comes behind those that the proxies before it have set.',
    `'X-Forwarded-For': [request.headers['x-forwarded-for'], request.socket.remoteAddress].join(),`,
  ];
}

/** Of the cookies that identify, unless all of them do. */
function cookieNames(policy: Policy): string[] {
  const isWhole = identifyingNames(policy, 'header').some(
    (name) => name.toLowerCase() === 'cookie',
  );
  return isWhole ? [] : identifyingNames(policy, 'cookie');
}

function quoted(text: string): string {
  return `'${text.replace(/[\\']/g, '\\$&')}'`;
}

const COOKIES_SOURCE = `
// The cookies of these names, and none of the others.
function cookies({ headers }, names) {
  const found = [];
  for (const pair of (headers.cookie ?? '').split(';')) {
    const [name, ...value] = pair.split('=');
    if (names.includes(name.trim())) found.push([name.trim(), ...value].join('='));
  }
  return found;
}
`;
