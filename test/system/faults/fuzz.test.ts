/**
 * Thousands of mutated requests: no request ends the process or makes it fail. Every well-formed
 * request gets one response. A body is accepted exactly if JSON.parse and its schema accept it.
 * Exactly the checks with a 200 response are charged.
 */

import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, test } from 'vitest';
import { parseBody } from '../../../src/api/common/input.ts';
import { limitV1 } from '../../../src/api/operations/v1/limit.ts';
import { limitV2 } from '../../../src/api/operations/v2/limit.ts';
import { multiLimit } from '../../../src/api/operations/v2/multi-limit.ts';
import { AMOUNT_MAX, SLOTS_PER_COUNTER, V2_DURATION_MAX_MS } from '../../../src/core/constants.ts';
import { ApiError } from '../../../src/core/errors.ts';
import { useDataDirectory } from '../../support/data-directory.ts';
import { newSeed, recordMeasurements, trialCount } from '../../support/guarantees.ts';
import {
  LONGEST_WINDOW_MS,
  type ParsedResponse,
  type RequestParts,
  readMetrics,
  requestBytes,
} from '../../support/http.ts';
import { DOCUMENTED_OPERATIONS, requestExamples } from '../../support/openapi.ts';
import { callOperationOk } from '../../support/operations.ts';
import { seededRandom } from '../../support/seeded-random.ts';
import { DECIDE_MODES, type ServerProcess } from '../../support/server.ts';
import { ReconnectingClient } from './http-connections.ts';
import {
  HEAD_TOKEN_SET,
  HOSTILE_STRINGS,
  isSingleValidRequest,
  JSON_TOKEN_SET,
  mutate,
  pick,
  type RandomBelow,
  shuffleLines,
} from './mutations.ts';
import { expectCleanStop } from './server-health.ts';

/** Requests for each mode and table. */
const REQUESTS = trialCount(600, 130_000);
/** Requests of each connection between two verifications. */
const BATCH = 400;
const CONNECTIONS = 12;
/** How long to wait for a response to bytes that may be an incomplete request. */
const INCOMPLETE_TIMEOUT_MS = 40;

type QueryFields = Record<string, string>;

/** The fields of a check that name its counter, and its cost. */
interface CheckFields {
  namespace?: string;
  identifier: string;
  duration: number;
  cost?: number;
}

/** Usage by counter, according to the responses. */
class ExpectedUsage {
  readonly #tokens = new Map<string, number>();
  readonly #touched = new Set<string>();

  add({ namespace = 'default', identifier, duration, cost = 1 }: CheckFields): void {
    // Shorter windows may end meanwhile.
    if (duration < V2_DURATION_MAX_MS) return;
    const key = JSON.stringify([namespace, identifier, duration]);
    this.#tokens.set(key, (this.#tokens.get(key) ?? 0) + cost);
    this.#touched.add(key);
  }

  async verify(client: ReconnectingClient): Promise<void> {
    for (const key of this.#touched) {
      const [namespace, identifier, duration] = JSON.parse(key);
      const body = { namespace, identifier, limit: AMOUNT_MAX, duration, cost: 0 };
      let used = -1;
      // Deferred deductions take some milliseconds, and longer on a busy machine.
      for (let tries = 0; tries < 1_000 && used !== this.#tokens.get(key); tries++) {
        if (tries > 0) await sleep(10);
        used = AMOUNT_MAX - (await client.check(body)).remaining;
      }
      expect([key, used]).toEqual([key, this.#tokens.get(key)]);
    }
    this.#touched.clear();
  }
}

/** A kind of request: how to make its body, and the expected outcome. */
interface RequestKind {
  parts: RequestParts;
  body: (below: RandomBelow) => string;
  /** Possible statuses for a complete body. */
  statuses: (bytes: Buffer) => number[];
  /** Records the usage that the body of a 200 response implies. */
  recordUsage?: (used: ExpectedUsage, bytes: Buffer, json: string) => void;
  /** Whether it is answered before later requests, so that requests may be pipelined after it. */
  pipelines: boolean;
}

const isId = (namespace: string | undefined) => namespace?.startsWith('rlns_') ?? false;

/** The result of a parser; undefined if it rejects the body. */
function parseOrUndefined<T>(work: () => T): T | undefined {
  try {
    return work();
  } catch (error) {
    if (error instanceof ApiError) return undefined;
    throw error;
  }
}

const text = (below: RandomBelow) => {
  return JSON.stringify(below(8) === 0 ? pick(below, HOSTILE_STRINGS) : `user_${below(40)}`);
};
const checkFields = (below: RandomBelow, durations: readonly number[]) => {
  const fields = [
    `"namespace":"${pick(below, ['fuzz', 'other', 'default'])}"`,
    `"identifier":${text(below)}`,
    `"limit":${pick(below, [10, 1_000, 1_000_000, AMOUNT_MAX])}`,
    `"duration":${pick(below, durations)}`,
  ];
  if (below(2) === 0) fields.push(`"cost":${pick(below, [0, 1, 2, 5])}`);
  return fields;
};
const V1_DURATIONS = [LONGEST_WINDOW_MS, V2_DURATION_MAX_MS, 60_000];
const V2_DURATIONS = [V2_DURATION_MAX_MS, 60_000];

const parsedV1 = (bytes: Buffer) =>
  parseOrUndefined(() => limitV1.validator.validate(parseBody(bytes)));
const parsedV2 = (bytes: Buffer) =>
  parseOrUndefined(() => limitV2.validator.validate(parseBody(bytes)));
const parsedMany = (bytes: Buffer) => {
  const items = parseOrUndefined(() => parseBody(bytes));
  if (!Array.isArray(items) || items.length < 1 || items.length > 100) return undefined;
  return parseOrUndefined(() => items.map((item) => multiLimit.validator.validate(item)));
};

const CHECKS: RequestKind[] = [
  {
    parts: { path: '/v1/ratelimits.limit' },
    pipelines: true,
    body: (below) => {
      const fields = checkFields(below, V1_DURATIONS);
      if (below(3) === 0) fields.push(`"async":${below(2) === 0}`);
      if (below(4) === 0) fields.push(`"meta":{"a":[1,{"b":null}]}`, `"resources":[{"id":"a"}]`);
      return `{${fields.join()}}`;
    },
    statuses: (bytes) => {
      const body = parsedV1(bytes);
      return [body === undefined || isId(body.namespace) ? 400 : 200];
    },
    recordUsage: (used, bytes, json) => {
      if (JSON.parse(json).success) used.add(parsedV1(bytes)!);
    },
  },
  {
    parts: { path: '/v2/ratelimit.limit' },
    pipelines: true,
    body: (below) => `{${checkFields(below, V2_DURATIONS).join()}}`,
    statuses: (bytes) => {
      const body = parsedV2(bytes);
      if (body === undefined) return [400];
      return [isId(body.namespace) ? 404 : 200];
    },
    recordUsage: (used, bytes, json) => {
      if (JSON.parse(json).data.success) used.add(parsedV2(bytes)!);
    },
  },
  {
    parts: { path: '/v2/ratelimit.multiLimit' },
    pipelines: true,
    body: (below) => {
      const count = pick(below, [1, 2, 3, 10]);
      const items = Array.from({ length: count }, () => checkFields(below, V2_DURATIONS).join());
      return `[{${items.join('},{')}}]`;
    },
    statuses: (bytes) => {
      const items = parsedMany(bytes);
      if (items === undefined) return [400];
      return [items.some(({ namespace }) => isId(namespace)) ? 404 : 200];
    },
    recordUsage: (used, bytes, json) => {
      if (JSON.parse(json).data.passed) for (const item of parsedMany(bytes)!) used.add(item);
    },
  },
  {
    parts: { path: '/v1/ratelimits.refund' },
    pipelines: false,
    body: (below) => {
      const duration = pick(below, V1_DURATIONS.slice(0, 2));
      const reset = (Math.floor(Date.now() / duration) + 1) * duration;
      const namespace = pick(below, ['fuzz', 'other']);
      const fields = `"duration":${duration},"reset":${reset},"cost":${below(3)}`;
      return `{"namespace":"${namespace}","identifier":${text(below)},${fields}}`;
    },
    statuses: (bytes) => (isObject(bytes) ? [200, 400] : [400]),
    recordUsage: (used, bytes, json) => {
      const body = parseBody(bytes) as CheckFields;
      used.add({ ...body, duration: Number(body.duration), cost: -JSON.parse(json).refunded });
    },
  },
];

function isObject(bytes: Buffer): boolean {
  const body = parseOrUndefined(() => parseBody(bytes));
  return typeof body === 'object' && body !== null && !Array.isArray(body);
}

/** All other operations and pages, by the examples of the OpenAPI document. */
const OTHERS = DOCUMENTED_OPERATIONS.filter(({ path }) => {
  return !path.includes('{namespace}') && !CHECKS.some(({ parts }) => parts.path === path);
}).map((operation): RequestKind => {
  const requests = requestExamples(operation).map(({ request }) => request);
  const path = operation.path.replace('{code}', 'BAD_REQUEST');
  const isPage = !/^.v\d/.test(path);
  if (operation.method === 'GET') {
    return {
      parts: { path, method: 'GET' },
      // The rest of a page that the kernel does not take at once waits for the client.
      pipelines: false,
      body: (below) => new URLSearchParams(pick(below, requests).query as QueryFields).toString(),
      statuses: () => (isPage ? [200] : [200, 400, 404]),
    };
  }
  return {
    parts: { path },
    pipelines: false,
    body: (below) => {
      return JSON.stringify(pick(below, requests).body).replace(/"user_\d+"|"vip_\*"/, text(below));
    },
    // Only a body that is no JSON object has a fixed status.
    statuses: (bytes) => (isObject(bytes) ? [200, 400, 404, 409] : [400]),
  };
});

/** Puts a body where its method has it. The request is well-formed for every body. */
function requestOf({ parts }: RequestKind, body: Buffer): Buffer {
  if (parts.method !== 'GET') return requestBytes({ ...parts, body });
  const query = body
    .toString('latin1')
    .replace(/[^\w=&%+.-]/g, (c) => `%${c.charCodeAt(0).toString(16).padStart(2, '0')}`);
  return requestBytes({ ...parts, path: `${parts.path}?${query}` });
}

/** The same body in chunks of random sizes. */
function chunked(below: RandomBelow, { parts }: RequestKind, body: Buffer): Buffer {
  const headers = { 'Content-Length': '', 'Transfer-Encoding': 'chunked' };
  const chunks: Buffer[] = [];
  for (let at = 0; at < body.length; ) {
    const chunk = body.subarray(at, at + 1 + below(60));
    chunks.push(Buffer.from(`${chunk.length.toString(16)}\r\n`), chunk, Buffer.from('\r\n'));
    at += chunk.length;
  }
  const head = requestBytes({ ...parts, headers });
  return Buffer.concat([head, ...chunks, Buffer.from('0\r\n\r\n')]);
}

interface FuzzCounts {
  sent: number;
  answered: number;
  /** Responses with status 200. */
  accepted: number;
  /** Requests that a server need not understand. */
  malformed: number;
}

interface FuzzTarget {
  server: ServerProcess;
  kinds: RequestKind[];
  isPipelined: boolean;
  /** Undefined if the table is full or overrides change the limits. */
  used?: ExpectedUsage;
  /** Of all connections. */
  counts: FuzzCounts;
}

/** The check of a request with a mutated head. */
const headCheck = (identifier: string) => {
  return { namespace: 'heads', identifier, limit: 5, duration: LONGEST_WINDOW_MS };
};

/** One connection. Its requests depend on its seed alone. */
class FuzzConnection {
  readonly #fuzzed: FuzzTarget;
  readonly #number: number;
  readonly #below: RandomBelow;
  readonly #client: ReconnectingClient;
  /** Identifiers of requests with a mutated head, and the outcome of each. */
  readonly #heads = new Map<string, 'well-formed' | 'malformed' | 'allowed'>();
  #nextHead = 0;

  constructor(fuzzed: FuzzTarget, number: number, seed: number) {
    this.#fuzzed = fuzzed;
    this.#number = number;
    this.#below = seededRandom(seed + 7_919 * number);
    this.#client = new ReconnectingClient(fuzzed.server.port);
  }

  async run(count: number): Promise<void> {
    for (let sent = 0; sent < count; ) {
      sent += this.#below(3) === 0 ? await this.#head() : await this.#bodies();
    }
    if (this.#fuzzed.used !== undefined) await this.#verifyHeads();
    this.#client.close();
  }

  #body(kind: RequestKind): Buffer {
    const below = this.#below;
    const whole = Buffer.from(kind.body(below));
    return below(5) === 0 ? whole : mutate(below, JSON_TOKEN_SET, whole);
  }

  /**
   * One or several well-formed requests: complete, chunked, or split into two packets.
   * @returns how many
   */
  async #bodies(): Promise<number> {
    const below = this.#below;
    // Exports are large, so only one connection requests them.
    const kinds = this.#fuzzed.kinds.filter(({ parts }) => {
      return this.#number === 0 || !parts.path?.endsWith('exportOverrides');
    });
    const first = pick(below, kinds);
    const pipelined = kinds.filter(({ pipelines }) => pipelines);
    const depth = first.pipelines && this.#fuzzed.isPipelined ? 1 + below(6) : 1;
    const made = Array.from({ length: depth }, (_, i) => {
      const one = i === 0 ? first : pick(below, pipelined);
      const body = this.#body(one);
      // The connection closes after a chunked or an empty body: no request may follow.
      const isLast = i === depth - 1;
      const isChunked = isLast && one.parts.method !== 'GET' && below(4) === 0;
      return {
        kind: one,
        body,
        bytes: isChunked ? chunked(below, one, body) : requestOf(one, body),
      };
    });
    const ends = made.findIndex(({ body }) => body.length === 0);
    const requests = ends < 0 ? made : made.slice(0, ends + 1);
    const bytes = Buffer.concat(requests.map((one) => one.bytes));
    // After the request line: uWebSockets.js does not support a split in it, see docs/security.md.
    const last = bytes.length - requests.at(-1)!.bytes.length;
    const from = last + bytes.subarray(last).indexOf('\r\n') + 2;
    const cut = from + below(bytes.length - from);
    const packets = below(2) === 0 ? [bytes] : [bytes.subarray(0, cut), bytes.subarray(cut)];
    this.#fuzzed.counts.sent += requests.length;
    const responses = await this.#client.send(packets, requests.length);
    const context = requests.map((one) => `${one.kind.parts.path} ${one.body}`);
    expect([context, responses.length]).toEqual([context, requests.length]);
    for (const [i, { kind, body }] of requests.entries()) this.#judge(kind, body, responses[i]);
    return requests.length;
  }

  #judge(kind: RequestKind, body: Buffer, response: ParsedResponse): void {
    const { status } = response;
    const { used, counts } = this.#fuzzed;
    counts.answered++;
    if (status === 200) counts.accepted++;
    // The maximum of 10 000 namespaces or 1 000 keys is reached.
    if (status === 400 && / already, which is the most/.test(response.body)) return;
    const context = `${kind.parts.path} ${JSON.stringify(body.toString('latin1'))}`;
    expect([context, kind.statuses(body), response.body]).toEqual([
      context,
      expect.arrayContaining([status]),
      response.body,
    ]);
    if (status === 200 && used !== undefined) kind.recordUsage?.(used, body, response.body);
  }

  /** One request with a mutated head, on its own connection. @returns 1 */
  async #head(): Promise<number> {
    const below = this.#below;
    const { server, kinds, used, counts } = this.#fuzzed;
    const identifier = `head_${this.#number}_${this.#nextHead++}`;
    this.#heads.set(identifier, 'malformed');
    const body = JSON.stringify(headCheck(identifier));
    const parts = used === undefined ? pick(below, kinds).parts : {};
    const whole = requestBytes({ ...parts, body });
    const end = whole.indexOf('\r\n\r\n') + 4;
    let head = whole.subarray(0, end);
    if (below(3) === 0) head = Buffer.from(shuffleLines(below, head.toString('latin1')), 'latin1');
    if (below(4) !== 0) head = mutate(below, HEAD_TOKEN_SET, head);
    const bytes = Buffer.concat([head, whole.subarray(end)]);
    const isOne = isSingleValidRequest(bytes);
    const cut = below(bytes.length);
    const isSplit = below(4) === 0 && (!isOne || cut > head.indexOf('\r\n') + 1);
    const packets = isSplit ? [bytes.subarray(0, cut), bytes.subarray(cut)] : [bytes];
    const client = new ReconnectingClient(server.port);
    counts.sent++;
    const timeoutMs = isOne ? 20_000 : INCOMPLETE_TIMEOUT_MS;
    const responses = await client.send(packets, isOne ? 1 : 2, timeoutMs);
    client.close();
    const context = JSON.stringify(packets.map((packet) => packet.toString('latin1')));
    const statuses = responses.map(({ status }) => status);
    const wrong = statuses.filter((status) => status >= 500 && status !== 505);
    expect([context, wrong]).toEqual([context, []]);
    if (isOne) {
      expect([context, statuses]).toEqual([context, [expect.any(Number)]]);
      expect([context, statuses[0] < 500]).toEqual([context, true]);
      counts.answered++;
      this.#heads.set(identifier, 'well-formed');
    } else {
      counts.malformed++;
    }
    if (responses.some(({ body: json }) => json.startsWith('{"success":true'))) {
      this.#heads.set(identifier, 'allowed');
      counts.accepted++;
    }
    return 1;
  }

  /** No request was decided twice. A well-formed request was charged exactly if it was allowed. */
  async #verifyHeads(): Promise<void> {
    for (const [identifier, state] of this.#heads) {
      const body = { ...headCheck(identifier), cost: 0 };
      const used = body.limit - (await this.#client.check(body)).remaining;
      const max = state === 'well-formed' ? 0 : 1;
      const min = state === 'allowed' ? 1 : 0;
      expect([identifier, state, used >= min && used <= max]).toEqual([identifier, state, true]);
    }
    this.#heads.clear();
  }
}

/** Sends mutated requests on several connections, in batches. Calls `verify` after each batch. */
async function runFuzz(
  target: Omit<FuzzTarget, 'counts'>,
  fault: string,
  verify: () => Promise<void>,
): Promise<void> {
  const seed = newSeed();
  const counts: FuzzCounts = { sent: 0, answered: 0, accepted: 0, malformed: 0 };
  const all = Array.from({ length: CONNECTIONS }, (_, number) => {
    return new FuzzConnection({ ...target, counts }, number, seed);
  });
  const share = Math.ceil(REQUESTS / CONNECTIONS);
  for (let done = 0; done < share; done += BATCH) {
    await Promise.all(all.map((one) => one.run(Math.min(BATCH, share - done))));
    await verify();
  }
  const { sent, answered, accepted, malformed } = counts;
  recordMeasurements(`${fault}; seed ${seed}`, `${sent} requests`, {
    P3: `${sent - malformed} well-formed, ${answered} answered, ${accepted} accepted`,
    P10: '0 exits, 0 5xx of weir',
  });
  const metrics = [...(await readMetrics(target.server.adminUrl))];
  const errors = metrics.filter(([name, n]) => /^weir_errors_total.*status="5/.test(name) && n > 0);
  expect(errors).toEqual([]);
  await expectCleanStop(target.server);
  expect(answered).toBe(sent - malformed);
  // With pipelined requests, about one of nine is malformed.
  expect([accepted > REQUESTS / 20, malformed > REQUESTS / 50]).toEqual([true, true]);
}

describe.each(DECIDE_MODES)('mutated requests, decided %s,', { timeout: 900_000 }, (mode) => {
  const own = useDataDirectory([]);
  const start = async (counters: number) => {
    const args = ['--acceptors', '2', '--decide', mode, '--counters', String(counters)];
    const server = await own.start({ args });
    return { server, client: new ReconnectingClient(server.port) };
  };
  const isPipelined = mode === 'in-place';

  test('are charged exactly if the response says so', async () => {
    const { server, client } = await start(262_144);
    const used = new ExpectedUsage();
    const target = { server, kinds: CHECKS, isPipelined, used };
    await runFuzz(target, `mutated checks, ${mode}`, () => used.verify(client));
  });

  test('of every operation do not harm a server with a full table', async () => {
    const { server, client } = await start(COUNTERS);
    await fill(server.port);
    let number = 0;
    const target = { server, kinds: [...CHECKS, ...OTHERS], isPipelined };
    await runFuzz(target, `mutated requests, full table, ${mode}`, async () => {
      const identifier = `after ${number++}`;
      const terms = { identifier, limit: 3, duration: LONGEST_WINDOW_MS };
      const override = { namespaceName: 'after', ...terms };
      await callOperationOk(server.port, 'ratelimits.setOverride', override);
      const body = { namespace: 'after', identifier, limit: 9, duration: 1_000 };
      expect(await client.check(body)).toMatchObject({ limit: 3 });
    });
  });
});

const COUNTERS = 1_024;

/** Creates more counters than slots. Each denies in its window, so none may be evicted. */
async function fill(port: number): Promise<void> {
  const each = Math.ceil((COUNTERS * SLOTS_PER_COUNTER * 1.2) / CONNECTIONS);
  const clients = Array.from({ length: CONNECTIONS }, async (_, number) => {
    const client = new ReconnectingClient(port);
    for (let i = 0; i < each; i++) {
      const identifier = `${number}/${i}`;
      const body = { namespace: 'full', identifier, limit: 1, duration: LONGEST_WINDOW_MS };
      await client.check(body);
      expect(await client.check(body)).toMatchObject({ success: false, remaining: 0 });
    }
    client.close();
  });
  await Promise.all(clients);
}
