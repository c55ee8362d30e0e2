// weir.mjs for express: checks each request with the policy orders of weir, before any
// route runs.
//
//   import { limit } from "./weir.mjs";
//   app.use(limit);
//
// express determines the address of the client. Behind a proxy: app.set('trust proxy', 1).

import { Agent, get } from 'node:http';

const WEIR = { host: '127.0.0.1', port: 7072, path: '/v1/check/orders?gateway=express' };
// The agent closes an idle connection after 5 s; weir closes it after 10 s. A flood queues for the
// connections, and the timeout does not include that wait.
const agent = new Agent({ keepAlive: true, timeout: 5_000, maxSockets: 64 });
// Long enough for responses that a flood delays on a busy machine.
const TIMEOUT_MS = 2000;
// After this many checks in a row without a response, only one check per interval waits for weir.
const FAILURES_MAX = 64;
const PROBE_INTERVAL_MS = 1_000;
let failures = 0;
let isProbeSent = false;
// onError: allow. Without a decision of weir the request is allowed.
const FALLBACK = { status: 200, headers: {}, body: '' };

// Headers for the client: of every decision, and more for a denial.
const ALLOWED_HEADERS = [
  'RateLimit-Policy',
  'RateLimit',
];
const DENIED_HEADERS = [...ALLOWED_HEADERS, 'Retry-After', 'Cache-Control', 'Content-Type'];

// The headers that identify the client; weir receives no others. Node sends no header for [].
function identity(request) {
  return {
    // A client that has disconnected has no address. weir counts it as unidentified.
    'X-Forwarded-For': request.ip ?? 'disconnected',
  };
}

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
      process.emitWarning(`weir has not answered: ${message}`);
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
    process.emitWarning(`weir answered ${status}`);
    return FALLBACK;
  }
  const headers = {};
  for (const name of status === 200 ? ALLOWED_HEADERS : DENIED_HEADERS) {
    const key = name.toLowerCase();
    if (key in responseHeaders) headers[name] = responseHeaders[key];
  }
  return { status, headers, body };
}

export async function limit(request, response, next) {
  const { status, headers, body } = await checkRequest(identity(request));
  for (const [name, value] of Object.entries(headers)) response.setHeader(name, value);
  if (status === 200) return next();
  response.statusCode = status;
  response.end(body);
}
