// @ts-check
/**
 * A proxy for an API of chat completions like that of OpenAI. It reserves the most tokens that a
 * call may use before it forwards the call, and commits the tokens that the model has reported.
 */

import { createServer } from 'node:http';
import { text } from 'node:stream/consumers';
import { commit, reserve } from './limiter.mjs';
import { estimatePrompt, isUsageOnly, maxAnswer, readRequest, StreamUsage } from './usage.mjs';

const PORT = Number(process.env.PORT ?? 8080);
const UPSTREAM_URL = process.env.UPSTREAM_URL ?? 'http://127.0.0.1:9090';
const UPSTREAM_KEY = process.env.UPSTREAM_KEY ?? 'key-of-the-upstream';
/** The longest time of a call. A reservation is longer, so that no commit is late. */
const CALL_TIMEOUT_MS = 100_000;
const RESERVATION_TTL_MS = CALL_TIMEOUT_MS + 20_000;

/** Errors of a call that has not been sent. */
const NO_CONNECTION = ['ECONNREFUSED', 'EHOSTUNREACH', 'ENOTFOUND', 'UND_ERR_CONNECT_TIMEOUT'];

/** The organizations, by the keys of their clients. */
const ORGANIZATIONS = new Map([
  ['key-of-acme', 'acme'],
  ['key-of-globex', 'globex'],
]);

/**
 * @typedef {import('node:http').ServerResponse} Reply
 * @typedef {import('./usage.mjs').ChatRequest} ChatRequest
 * @typedef {import('./limiter.mjs').Reservation} Reservation
 */

const server = createServer(async (request, reply) => {
  if (request.method !== 'POST' || request.url !== '/v1/chat/completions') {
    return fail(reply, 404, 'not_found', 'there is only POST /v1/chat/completions');
  }
  const key = /^Bearer (\S+)$/.exec(request.headers.authorization ?? '')?.[1];
  const organization = ORGANIZATIONS.get(key ?? '');
  if (organization === undefined) return fail(reply, 401, 'invalid_api_key', 'the key is unknown');
  const call = readRequest(await text(request).catch(() => ''));
  if (call === undefined) {
    const rule = '"messages" must be an array, and "max_tokens" and "n" positive integers';
    return fail(reply, 400, 'invalid_request_error', rule);
  }

  const promptTokens = estimatePrompt(call);
  const cost = promptTokens + maxAnswer(call);
  let reservation;
  try {
    reservation = await reserve(organization, cost, RESERVATION_TTL_MS);
  } catch (error) {
    // Fail-closed: each answer of the model costs money.
    console.warn('weir has not decided:', error);
    reply.setHeader('Retry-After', '1');
    return fail(reply, 503, 'limiter_unavailable', 'the tokens cannot be counted at the moment');
  }
  if (!reservation.success) return deny(reply, reservation, cost);
  let used = cost;
  try {
    used = await forward(call, promptTokens, cost, reply);
  } finally {
    await commit(reservation, used);
  }
});
server.listen(PORT, '127.0.0.1', () => console.log(`http://127.0.0.1:${PORT}`));

/**
 * @param {ChatRequest} call
 * @param {number} promptTokens
 * @param {number} reserved
 * @param {Reply} reply
 * @returns {Promise<number>} the tokens that the call has used; those reserved if that is unknown
 */
async function forward(call, promptTokens, reserved, reply) {
  // Nothing has been sent to the model.
  if (reply.destroyed) return 0;
  const clientGone = new AbortController();
  reply.once('close', () => clientGone.abort());
  let answer;
  try {
    answer = await fetch(`${UPSTREAM_URL}/v1/chat/completions`, {
      method: 'POST',
      headers: { Authorization: `Bearer ${UPSTREAM_KEY}`, 'Content-Type': 'application/json' },
      body: JSON.stringify(withUsage(call)),
      signal: AbortSignal.any([clientGone.signal, AbortSignal.timeout(CALL_TIMEOUT_MS)]),
    });
  } catch (error) {
    const { cause } = /** @type {{ cause?: { code?: string } }} */ (error);
    fail(reply, 502, 'upstream_unavailable', 'the model does not answer');
    // Without a connection the call used nothing. Otherwise the model may have worked on it.
    return NO_CONNECTION.includes(cause?.code ?? '') ? 0 : reserved;
  }
  const type = answer.headers.get('Content-Type') ?? 'application/json';
  reply.writeHead(answer.status, { 'Content-Type': type });
  if (!answer.ok || !call.stream || answer.body === null) {
    return forwardWhole(answer, reserved, reply);
  }

  const usage = new StreamUsage();
  try {
    for await (const event of eventsOf(answer.body)) {
      usage.add(event);
      if (isUsageOnly(event) && !call.stream_options?.include_usage) continue;
      if (!reply.write(event)) await drained(reply);
    }
    reply.end();
  } catch (error) {
    console.warn('a stream has ended early:', error);
    reply.destroy();
  }
  return usage.tokens(promptTokens) ?? reserved;
}

/**
 * @param {Response} answer
 * @param {number} reserved
 * @param {Reply} reply
 */
async function forwardWhole(answer, reserved, reply) {
  try {
    const body = await answer.text();
    reply.end(body);
    return answer.ok ? (JSON.parse(body).usage?.total_tokens ?? reserved) : 0;
  } catch (error) {
    console.warn('an answer has ended early:', error);
    reply.destroy();
    return answer.ok ? reserved : 0;
  }
}

/** @param {ChatRequest} call */
function withUsage(call) {
  return call.stream
    ? { ...call, stream_options: { ...call.stream_options, include_usage: true } }
    : call;
}

/**
 * The events of a stream, each with the empty line after it.
 * @param {ReadableStream<Uint8Array>} body
 */
async function* eventsOf(body) {
  let rest = '';
  for await (const part of body.pipeThrough(new TextDecoderStream())) {
    const events = (rest + part).split(/(?<=\n\r?\n)/);
    rest = /\n\r?\n$/.test(events.at(-1) ?? '') ? '' : (events.pop() ?? '');
    yield* events;
  }
  if (rest !== '') yield rest;
}

/** @param {Reply} reply */
function drained(reply) {
  return new Promise((resolve) => {
    reply.once('drain', resolve);
    reply.once('close', resolve);
  });
}

/**
 * @param {Reply} reply
 * @param {Reservation} reservation
 * @param {number} cost
 */
function deny(reply, { limit, reset }, cost) {
  if (cost > limit) {
    const rule = `the call may use ${cost} tokens, and the limit is ${limit}: lower "max_tokens"`;
    return fail(reply, 429, 'rate_limit_exceeded', rule);
  }
  const seconds = Math.max(1, Math.ceil((reset - Date.now()) / 1_000));
  reply.setHeader('Retry-After', String(seconds));
  fail(reply, 429, 'rate_limit_exceeded', `${cost} tokens are not left; retry after ${seconds} s`);
}

/**
 * @param {Reply} reply
 * @param {number} status
 * @param {string} code
 * @param {string} message
 */
function fail(reply, status, code, message) {
  reply.writeHead(status, { 'Content-Type': 'application/json' });
  reply.end(JSON.stringify({ error: { message, type: code, code } }));
}
