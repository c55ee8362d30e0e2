/** Each connection gets its turn: what pipelined requests take of one turn of the loop. */

import { connect, type Socket } from 'node:net';
import { describe, expect, test } from 'vitest';
import { SLOW_CHECKS } from '../../bench/support/worst-overrides.ts';
import {
  TURN_CONNECTIONS_MAX,
  TURN_REQUESTS,
  TURN_REQUESTS_PER_CONNECTION,
} from '../../src/core/constants.ts';
import {
  checkBody,
  LONGEST_WINDOW_MS,
  type ParsedResponse,
  parseResponses,
  requestBytes,
} from '../support/http.ts';
import { suspendProcess } from '../support/server.ts';
import { useServer } from '../support/test-server.ts';

/** A packet that the kernel buffers whole, although its receiver does not read. */
const PACKET_BYTES = 30_000;

/** A connection that reads nothing before `responses`. */
class Pipeline {
  readonly #socket: Socket;
  readonly connected: Promise<void>;

  constructor(port: number) {
    this.#socket = connect(port, '127.0.0.1').pause();
    this.connected = new Promise((resolve) => this.#socket.on('connect', resolve));
    // Bytes that arrive at a closed connection reset it.
    this.#socket.on('error', () => {});
  }

  write(bytes: Buffer): Promise<void> {
    return new Promise((resolve) => this.#socket.write(bytes, () => resolve()));
  }

  /** All responses until the server closes, or until there are so many. */
  responses(count: number): Promise<ParsedResponse[]> {
    return new Promise((resolve) => {
      let text = '';
      const answers: ParsedResponse[] = [];
      const finish = () => {
        this.#socket.destroy();
        resolve(answers);
      };
      this.#socket.setEncoding('latin1');
      this.#socket.on('data', (data) => {
        const parsed = parseResponses(text + data);
        text = parsed.rest;
        answers.push(...parsed.answers);
        if (answers.length === count) finish();
      });
      this.#socket.on('close', finish);
      this.#socket.resume();
    });
  }
}

const LIMIT = 1_000_000;
const HOUR_MS = 3_600_000;

describe('requests that arrive in one turn of the loop', () => {
  const server = useServer({
    policies: {
      site: { windows: [{ limit: LIMIT, duration: HOUR_MS }], identify: 'header:x-client' },
    },
  });

  /**
   * Sends a packet on each connection. The server reads all of them in one turn.
   * @param before what it reads earlier
   */
  async function sendInOneTurn(
    packets: readonly Buffer[],
    counts: readonly number[],
    port = server.port,
    before: readonly Buffer[] = [],
  ): Promise<ParsedResponse[][]> {
    const pipelines = packets.map(() => new Pipeline(port));
    await Promise.all(pipelines.map(({ connected }) => connected));
    await Promise.all(before.map((bytes, i) => pipelines[i].write(bytes)));
    // Its acceptor has accepted them all before this connection.
    await server.check({ identifier: 'accepted', limit: 1, duration: LONGEST_WINDOW_MS, cost: 0 });
    await suspendProcess(server);
    await Promise.all(pipelines.map((pipeline, i) => pipeline.write(packets[i])));
    server.child.kill('SIGCONT');
    return Promise.all(pipelines.map((pipeline, i) => pipeline.responses(counts[i])));
  }

  const used = async (identifier: string) => {
    const check = { identifier, limit: LIMIT, duration: LONGEST_WINDOW_MS, cost: 0 };
    return LIMIT - (await server.check(check)).remaining;
  };
  const checkBytes = (identifier: string) => {
    return requestBytes({ body: checkBody(identifier, LIMIT) });
  };
  const repeated = (bytes: Buffer, count: number) => {
    return Buffer.concat(Array.from({ length: count }, () => bytes));
  };
  const closed = () => server.metric('weir_shed_total{reason="pipelined"}');
  const total = (counts: readonly number[]) => counts.reduce((sum, count) => sum + count, 0);
  /** The most requests of a turn: the last one is answered although it is one too many. */
  const most = (connections: number) => {
    return TURN_REQUESTS + TURN_REQUESTS_PER_CONNECTION * connections + 1;
  };
  /** More than the connections of a test: idle ones of other clients are open too. */
  const IDLE = 16;

  test('are bounded. Checks count where they are answered, and repeated ones are exact', async () => {
    const names = Array.from({ length: 40 }, (_, i) => `burst ${i}`);
    const burst = Math.floor(PACKET_BYTES / checkBytes(names[0]).length);
    const left = new Map(names.map((name) => [name, burst]));
    for (let round = 0; left.size > 0; round++) {
      const before = await closed();
      const bursts = [...left];
      const packets = bursts.map(([name, count]) => repeated(checkBytes(name), count));
      const other = `other ${round}`;
      const responses = await sendInOneTurn(
        [...packets, checkBytes(other)],
        [...bursts.map(([, count]) => count), 1],
      );
      const counts = responses.map(({ length }) => length);
      // A client that awaits its response gets it, in whichever order the connections are read.
      expect([counts.pop(), await used(other)]).toEqual([1, 1]);
      expect(total(counts)).toBeLessThanOrEqual(most(packets.length + 1 + IDLE));
      expect(total(counts)).toBeGreaterThanOrEqual(
        Math.min(TURN_REQUESTS, total(bursts.map(([, count]) => count))),
      );
      const isClosed = bursts.map(([, count], i) => counts[i] < count);
      expect((await closed()) - before).toBe(isClosed.filter((one) => one).length);
      for (const [i, [name, count]] of bursts.entries()) {
        if (isClosed[i]) left.set(name, count - counts[i]);
        else left.delete(name);
        expect(await used(name)).toBe(burst - (left.get(name) ?? 0));
      }
    }
  });

  test('close no connection if each has one, or eight', async () => {
    const before = await closed();
    const one = Array.from({ length: 1_000 }, (_, i) => checkBytes(`one ${i}`));
    const responses = await sendInOneTurn(
      one,
      one.map(() => 1),
    );
    expect(responses.flat().map(({ status }) => status)).toEqual(one.map(() => 200));
    const eight = Array.from({ length: TURN_CONNECTIONS_MAX }, (_, i) => {
      return repeated(checkBytes(`many ${i}`), TURN_REQUESTS_PER_CONNECTION);
    });
    const answers = await sendInOneTurn(
      eight,
      eight.map(() => TURN_REQUESTS_PER_CONNECTION),
    );
    expect(total(answers.map(({ length }) => length))).toBe(
      TURN_CONNECTIONS_MAX * TURN_REQUESTS_PER_CONNECTION,
    );
    expect(await closed()).toBe(before);
  });

  test('are lists, of which each gets a response', async () => {
    const items = Array.from({ length: 100 }, (_, i) => {
      return { namespace: 'lists', identifier: `of all ${i}`, limit: LIMIT, duration: HOUR_MS };
    });
    const list = requestBytes({ path: '/v2/ratelimit.multiLimit', body: JSON.stringify(items) });
    const before = await closed();
    const packets = Array.from({ length: 500 }, () => list);
    const responses = await sendInOneTurn(
      packets,
      packets.map(() => 1),
    );
    expect(responses.flat().map(({ status }) => status)).toEqual(packets.map(() => 200));
    expect(await closed()).toBe(before);
  });

  test('are fewer where patterns make checks slow. A check that is awaited gets its response', async () => {
    const namespace = 'slow patterns';
    const { patterns, identifier } = SLOW_CHECKS[0];
    await server.ok('ratelimits.importOverrides', {
      overrides: patterns.map((pattern) => {
        return { namespaceName: namespace, identifier: pattern, limit: LIMIT, duration: HOUR_MS };
      }),
    });
    const terms = { namespace, identifier, limit: LIMIT, duration: HOUR_MS };
    const slow = requestBytes({ body: JSON.stringify(terms) });
    const bursts = Array.from({ length: TURN_CONNECTIONS_MAX }, () => {
      return repeated(slow, TURN_REQUESTS_PER_CONNECTION);
    });
    const answers = await sendInOneTurn(
      bursts,
      bursts.map(() => TURN_REQUESTS_PER_CONNECTION),
    );
    const answered = total(answers.map(({ length }) => length));
    expect(answered).toBeLessThan((TURN_CONNECTIONS_MAX * TURN_REQUESTS_PER_CONNECTION) / 4);
    const { remaining } = await server.check({ ...terms, cost: 0 });
    expect(LIMIT - remaining).toBe(answered);
    const before = await closed();
    const awaited = Array.from({ length: 200 }, () => slow);
    const ones = awaited.map(() => 1);
    const responses = await sendInOneTurn(awaited, ones);
    expect(responses.flat().map(({ status }) => status)).toEqual(awaited.map(() => 200));
    // Bodies end in a later turn than their heads.
    const heads = awaited.map((bytes) => bytes.subarray(0, -1));
    const ends = awaited.map((bytes) => bytes.subarray(-1));
    const late = await sendInOneTurn(ends, ones, server.port, heads);
    expect(late.flat().map(({ status }) => status)).toEqual(awaited.map(() => 200));
    expect(await closed()).toBe(before);
    expect(LIMIT - (await server.check({ ...terms, cost: 0 })).remaining).toBe(answered + 400);
  });

  const bad = { Authorization: 'Bearer wrong' };
  const get = (path: string) => Buffer.from(`GET ${path} HTTP/1.1\r\nHost: a\r\n\r\n`);
  test.each<[what: string, bytes: Buffer, status: number]>([
    ['errors', requestBytes({ headers: bad, body: checkBody('bad') }), 401],
    ['pages', get('/docs/errors/NOT_FOUND'), 200],
    ['paths that do not exist', get('/nowhere'), 404],
  ])('are bounded: %s', async (_what, bytes, status) => {
    const CONNECTIONS = 40;
    const count = Math.floor(PACKET_BYTES / bytes.length);
    const packets = Array.from({ length: CONNECTIONS }, () => repeated(bytes, count));
    const responses = await sendInOneTurn(
      packets,
      packets.map(() => count),
    );
    expect(new Set(responses.flat().map((response) => response.status))).toEqual(new Set([status]));
    expect(responses.flat().length).toBeLessThanOrEqual(most(CONNECTIONS + IDLE));
  });

  test('are bounded: gateway checks. One of a gateway that awaits its response gets it', async () => {
    const CONNECTIONS = 40;
    const checkOf = (client: string) => {
      const head = 'GET /v1/check/site HTTP/1.1\r\nHost: a\r\n';
      return Buffer.from(`${head}X-Client: ${client}\r\n\r\n`);
    };
    const count = Math.floor(PACKET_BYTES / checkOf('burst').length);
    const packets = Array.from({ length: CONNECTIONS }, () => repeated(checkOf('burst'), count));
    const responses = await sendInOneTurn(
      [...packets, checkOf('other')],
      [...packets.map(() => count), 1],
      server.gatewayPort,
    );
    expect(responses.pop()).toMatchObject([{ status: 200 }]);
    expect(responses.flat().length).toBeLessThanOrEqual(most(CONNECTIONS + 1 + IDLE));
  });
});
