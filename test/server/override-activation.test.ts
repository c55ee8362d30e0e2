/** An acknowledged override is active on every acceptor for the next check, and never in part. */

import { connect, type Socket } from 'node:net';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { trialCount } from '../support/guarantees.ts';
import { LONGEST_WINDOW_MS, parseResponses, requestBytes } from '../support/http.ts';
import { seededRandom } from '../support/seeded-random.ts';
import { waitUntil } from '../support/server.ts';
import { useServer } from '../support/test-server.ts';

const ACCEPTORS = 3;
/** Enough connections that each acceptor has some of them. */
const CONNECTIONS = 24;

/** A connection that sends one request at a time. */
class SequentialConnection {
  readonly #socket: Socket;
  #received = '';
  #bodies: string[] = [];
  #wanted = 0;
  #responded: ((bodies: string[]) => void) | undefined;

  constructor(port: number) {
    this.#socket = connect(port, '127.0.0.1');
    this.#socket.setNoDelay(true);
    this.#socket.setEncoding('latin1');
    this.#socket.on('data', (data) => {
      const { answers, rest } = parseResponses(this.#received + data);
      this.#received = rest;
      this.#bodies.push(...answers.map(({ body }) => body));
      if (this.#bodies.length === this.#wanted) this.#responded?.(this.#bodies);
    });
  }

  async send(bytes: Buffer): Promise<string> {
    const [body] = await this.sendAll([bytes]);
    return body;
  }

  /** Several requests in one packet, which an acceptor serves in one turn of its loop. */
  sendAll(requests: Buffer[]): Promise<string[]> {
    return new Promise((resolve) => {
      this.#bodies = [];
      this.#wanted = requests.length;
      this.#responded = resolve;
      this.#socket.write(Buffer.concat(requests));
    });
  }

  close(): void {
    this.#socket.destroy();
  }
}

const checkBytes = (namespace: string, identifier: string) => {
  const body = { namespace, identifier, limit: 1, duration: LONGEST_WINDOW_MS, cost: 0 };
  return requestBytes({ body: JSON.stringify(body) });
};
const setOverrideBytes = (namespaceName: string, identifier: string, limit: number) => {
  const body = { namespaceName, identifier, limit, duration: LONGEST_WINDOW_MS };
  return requestBytes({ path: '/v1/ratelimits.setOverride', body: JSON.stringify(body) });
};
const limitIn = (response: string): number => JSON.parse(response).limit;

describe('an acknowledged override', () => {
  const server = useServer({ args: ['--acceptors', String(ACCEPTORS)] });
  let lines: SequentialConnection[];
  beforeAll(() => {
    lines = Array.from({ length: CONNECTIONS }, () => new SequentialConnection(server.port));
  });
  afterAll(() => {
    for (const line of lines) line.close();
  });

  const CHANGES = trialCount(60, 1_000);

  test(`applies to the next check on every connection, ${CONNECTIONS * CHANGES} times`, async () => {
    const admin = new SequentialConnection(server.port);
    const below = seededRandom(4);
    let checks = 0;
    for (let i = 1; i <= CHANGES; i++) {
      // Exact and with a wildcard, by name and by pattern.
      const kind = below(4);
      const namespace = kind < 2 ? 'exact' : 'patt*';
      const identifier = kind % 2 === 0 ? `user_${i}` : `user_${i}*`;
      const response = await admin.send(setOverrideBytes(namespace, identifier, i));
      expect(JSON.parse(response).overrideId).toMatch(/^rlor_/);
      const bytes = checkBytes(kind < 2 ? 'exact' : 'pattern', `user_${i}`);
      const limits = (await Promise.all(lines.map((line) => line.send(bytes)))).map(limitIn);
      expect(limits).toEqual(lines.map(() => i));
      checks += limits.length;
    }
    admin.close();
    expect(checks).toBe(CONNECTIONS * CHANGES);
  });

  const VERSIONS = trialCount(30, 800);

  test('is never mixed with another version while changes continue', async () => {
    // Each version has the same limit for an exact identifier and for a pattern.
    const set = (limit: number) => {
      const override = (identifier: string) => ({
        namespaceName: 'mixed',
        identifier,
        limit,
        duration: LONGEST_WINDOW_MS,
      });
      const overrides = [override('exact'), override('star*')];
      return server.call('ratelimits.importOverrides', { overrides });
    };
    await set(1);
    let published = 1;
    let pairs = 0;
    let going = true;
    const changing = (async () => {
      for (let limit = 2; limit <= VERSIONS; limit++) {
        expect((await set(limit)).status).toBe(200);
        published = limit;
        // Also while no other process leaves it time, checks come between two changes.
        const before = pairs;
        await waitUntil('a check was decided', () => pairs > before);
      }
      going = false;
    })();
    const asking = lines.map(async (line) => {
      const both = [checkBytes('mixed', 'exact'), checkBytes('mixed', 'starry')];
      let last = 0;
      while (going) {
        const before = published;
        const [first, second] = (await line.sendAll(both)).map(limitIn);
        // One version: at least the acknowledged one, at most the pending one, and never an older.
        expect(second).toBe(first);
        expect(first).toBeGreaterThanOrEqual(Math.max(before, last));
        expect(first).toBeLessThanOrEqual(published + 1);
        last = first;
        pairs++;
      }
    });
    await changing;
    await Promise.all(asking);
  });

  const IDLE_CHANGES = 5;

  test('applies to the first check on an idle server, with one round per change', async () => {
    const before = await server.metric('weir_write_transactions_total');
    for (let i = 1; i <= IDLE_CHANGES; i++) {
      // The threads of an idle server sleep.
      await new Promise((resolve) => setTimeout(resolve, 20));
      const [admin, ...fresh] = Array.from(
        { length: 9 },
        () => new SequentialConnection(server.port),
      );
      await admin.send(setOverrideBytes('idle', 'quiet', i));
      const bytes = checkBytes('idle', 'quiet');
      const limits = await Promise.all(fresh.map((line) => line.send(bytes)));
      expect(limits.map(limitIn)).toEqual(fresh.map(() => i));
      for (const line of [admin, ...fresh]) line.close();
    }
    expect((await server.metric('weir_write_transactions_total')) - before).toBe(IDLE_CHANGES);
  });

  test('is counted when it applies to a check', async () => {
    const figure = () => server.metric('weir_overridden_checks_total');
    await lines[0].send(setOverrideBytes('counted', 'governed', 5));
    const before = await figure();
    await lines[1].send(checkBytes('counted', 'governed'));
    await lines[2].send(checkBytes('counted', 'another'));
    expect((await figure()) - before).toBe(1);
  });
});
