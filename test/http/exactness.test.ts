import { connect } from 'node:net';
import { expect, test } from 'vitest';
import { requestBytes } from '../support/http.ts';
import { removeDirectory, startServer, temporaryDirectory } from '../support/server.ts';

const CONNECTIONS = 64;
const DEPTH = 16;
const BATCHES = 1_024;
const HOT = 6;
const COLD = 3_000;
const DURATION_MS = 2_000;
const COSTS = [1, 1, 1, 1, 2, 3, 7, 0];

const limitOf = (id: number) => (id < HOT ? 9_000 + id : 15 + (id % 11));

const requests = Array.from({ length: HOT + COLD }, (_, id) =>
  COSTS.map((cost) => {
    const body = { identifier: `id_${id}`, limit: limitOf(id), duration: DURATION_MS, cost };
    return requestBytes({ body: JSON.stringify(body) });
  }),
);

interface Sent {
  id: number;
  cost: number;
}
interface Tally {
  admitted: number;
  /** The smallest cost that was refused. */
  refused: number;
}

const ANSWER = /\{"success":(true|false),"limit":\d+,"remaining":\d+,"reset":(\d+)\}/g;

/** One connection: sends a batch in one packet, reads its answers, sends the next. */
function converse(
  port: number,
  seed: number,
  record: (sent: Sent, admitted: boolean, reset: number) => void,
): Promise<number> {
  let random = seed;
  const next = (below: number) => {
    random = (Math.imul(random, 1_664_525) + 1_013_904_223) | 0;
    return (random >>> 8) % below;
  };
  return new Promise((resolve, reject) => {
    const socket = connect(port, '127.0.0.1');
    let batch: Sent[] = [];
    let received = '';
    let answered = 0;
    const send = () => {
      batch = Array.from({ length: DEPTH }, () => {
        const id = next(3) === 0 ? HOT + next(COLD) : next(HOT);
        return { id, cost: next(COSTS.length) };
      });
      socket.write(Buffer.concat(batch.map(({ id, cost }) => requests[id][cost])));
    };
    socket.setEncoding('latin1');
    socket.on('error', reject);
    socket.on('close', () => reject(new Error(`closed after ${answered} answers`)));
    socket.on('connect', send);
    socket.on('data', (data) => {
      received += data;
      const answers = [...received.matchAll(ANSWER)];
      if (answers.length < DEPTH) return;
      received = '';
      answers.forEach(([, success, reset], i) => {
        record(batch[i], success === 'true', Number(reset));
      });
      answered += answers.length;
      if (answered < DEPTH * BATCHES) return send();
      socket.removeAllListeners('close');
      socket.destroy();
      resolve(answered);
    });
  });
}

test('two acceptors, 64 connections, 10^6 checks: no window admits more than its limit, none less', async () => {
  const dataDir = temporaryDirectory();
  const server = await startServer(dataDir, {
    args: ['--acceptors', '2', '--counters', '65536'],
  });
  const tallies = new Map<string, Tally>();
  const record = ({ id, cost }: Sent, admitted: boolean, reset: number) => {
    const key = `${id}/${reset}`;
    let tally = tallies.get(key);
    if (tally === undefined) {
      tally = { admitted: 0, refused: Number.POSITIVE_INFINITY };
      tallies.set(key, tally);
    }
    if (admitted) tally.admitted += COSTS[cost];
    else tally.refused = Math.min(tally.refused, COSTS[cost]);
  };
  const counts = await Promise.all(
    Array.from({ length: CONNECTIONS }, (_, i) => converse(server.port, i + 1, record)),
  );
  expect(await server.stop()).toEqual({ code: 0, signal: null });
  removeDirectory(dataDir);

  const wrong: string[] = [];
  let tokens = 0;
  let exhausted = 0;
  for (const [key, { admitted, refused }] of tallies) {
    const limit = limitOf(Number(key.split('/')[0]));
    if (admitted > limit) wrong.push(`${key}: ${admitted} of ${limit} admitted`);
    // A refusal of c was right if the window had not c tokens left, and so has not at its end.
    if (admitted + refused <= limit) wrong.push(`${key}: ${refused} refused at ${admitted}`);
    tokens += admitted;
    if (refused < Number.POSITIVE_INFINITY) exhausted++;
  }
  expect(wrong).toEqual([]);
  const total = counts.reduce((sum, count) => sum + count, 0);
  expect(total).toBe(CONNECTIONS * DEPTH * BATCHES);
  expect(exhausted).toBeGreaterThan(HOT);
  expect(server.stderr()).not.toContain('raise WEIR_COUNTERS');
  console.info(
    `${total} checks, ${tokens} tokens admitted, ${tallies.size} windows, ${exhausted} exhausted`,
  );
}, 120_000);
