/** The traces of docs/leases.md, by the code of the machines and the model of the script. */

import { expect, test } from 'vitest';
import type { LeaseState } from '../../src/engine/redis/counter/lease-state.ts';
import {
  type CounterAnswer,
  type CounterMessage,
  MESSAGE_STATUS,
  SERVED,
} from '../../src/engine/redis/scripts/protocol.ts';
import { LIMIT, MINUTE, TestCounter } from '../engine/redis/counter/exchange.ts';
import { counterAt, exchange, joinedRedis, keyOfMessage } from './lease-model.ts';

const WINDOW = 1_000_000;
/** Shortly after the beginning of the window. */
const START_MS = WINDOW * MINUTE + 10_000;
const MEMBERS = { a: 'a.0', b: 'b.0' };

class Cluster {
  readonly a = new TestCounter();
  readonly b = new TestCounter();
  readonly #redis = joinedRedis('run', START_MS * 1_000, Object.values(MEMBERS));
  readonly #header = { reportedEpoch: `run.${START_MS}`, membersVersion: START_MS, clockUs: 0 };

  /** A message of a machine arrives in Redis. */
  deliver(name: 'a' | 'b', message: CounterMessage): CounterAnswer {
    const header = { ...this.#header, member: MEMBERS[name] };
    return exchange(this.#redis, START_MS * 1_000, header, [message]).answer.counters[0];
  }

  /** A message and its answer. */
  exchange(name: 'a' | 'b'): CounterAnswer {
    const answer = this.deliver(name, this[name].compose(START_MS));
    this[name].answer(answer, START_MS);
    return answer;
  }

  /** The totals `u` and `r` in Redis. */
  totals(): [u: number, r: number] {
    const { identity, durationMs } = this.a.counter;
    const counter = this.#redis.counters[counterAt(keyOfMessage({ identity, durationMs }), WINDOW)];
    return [counter.used, counter.known];
  }
}

function spend(state: LeaseState, tokens: number): void {
  state.lease -= tokens;
  state.spent += tokens;
}

test('a recall moves the tokens of a lease to another machine, and then denies by known usage', () => {
  const cluster = new Cluster();
  const { a, b } = cluster;
  a.add();
  expect(cluster.exchange('a')).toMatchObject({ served: [SERVED.allowed], lent: 5, others: 0 });
  expect([a.state.spent, a.state.lease, cluster.totals()]).toEqual([1, 5, [6, 0]]);
  spend(a.state, 3);
  b.add({ cost: 96 });
  expect(cluster.exchange('b').served).toEqual([SERVED.unproven]);
  a.counter.mustReturn = true;
  cluster.exchange('a');
  expect(cluster.totals()).toEqual([4, 4]);
  b.counter.retryMs = 0;
  expect(cluster.exchange('b')).toMatchObject({ served: [SERVED.allowed], lent: 0 });
  expect(cluster.totals()).toEqual([100, 4]);
  a.add();
  expect(cluster.exchange('a').served).toEqual([SERVED.unproven]);
  b.counter.mustReturn = true;
  cluster.exchange('b');
  expect(cluster.totals()).toEqual([100, 100]);
  expect(cluster.exchange('a')).toMatchObject({ served: [SERVED.denied], others: 96 });
  expect(a.state.spent + a.state.others).toBe(LIMIT);
});

test('a lost answer is settled by the next message, and the first one is stale then', () => {
  const cluster = new Cluster();
  const { a } = cluster;
  a.add();
  const first = a.compose(START_MS);
  cluster.deliver('a', first);
  expect(cluster.totals()).toEqual([6, 0]);
  expect(a.answer(undefined, START_MS).isDirty).toBe(true);
  expect(cluster.exchange('a')).toMatchObject({ served: [SERVED.allowed], lent: 5 });
  expect(cluster.totals()).toEqual([6, 0]);
  expect(cluster.deliver('a', first).status).toBe(MESSAGE_STATUS.stale);
  expect(cluster.totals()).toEqual([6, 0]);
});
