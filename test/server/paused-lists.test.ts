/**
 * Lists of checks whose overrides take long to resolve, by the clock and by the steps of a search.
 * Each reading of the clock moves it.
 */

import { setImmediate as nextTurn } from 'node:timers/promises';
import { beforeEach, expect, test } from 'vitest';
import { IdentifierRecorder } from '../../src/analytics/recorder.ts';
import { BodyScanner } from '../../src/api/common/body-scanner.ts';
import { NamespaceFinder } from '../../src/api/common/namespace-finder.ts';
import { RequestIds } from '../../src/api/common/request-ids.ts';
import { Keyring } from '../../src/auth/keyring.ts';
import { rootKeyRecord } from '../../src/auth/keys.ts';
import { LONG_REQUESTS_MAX, V2_DURATION_MAX_MS } from '../../src/core/constants.ts';
import { Hasher } from '../../src/core/hash.ts';
import { DecisionRecorder } from '../../src/decision-thread/decision-recorder.ts';
import { ActiveOverrides } from '../../src/overrides/active.ts';
import { copyExact } from '../../src/overrides/exact.ts';
import { ExactOverrideSet } from '../../src/overrides/sets.ts';
import { KnownNamespaces } from '../../src/registry/known-namespaces.ts';
import { CheckHandler } from '../../src/server/checks.ts';
import { DeferredResponses } from '../../src/server/deferred-responses.ts';
import { RepeatableRequests } from '../../src/server/repeatable-requests.ts';
import type { Responder } from '../../src/server/responder.ts';
import { Turns } from '../../src/server/turns.ts';
import type { HttpResponse } from '../../src/server/uws.ts';
import { Clock, ClockPublisher } from '../../src/shared-memory/clock.ts';
import { allocateControl, Control } from '../../src/shared-memory/control.ts';
import { ACCEPTOR_STAT } from '../../src/shared-memory/stats.ts';
import { TestEngine } from '../support/engines.ts';

const HASH_KEY = Buffer.from('0123456789abcdef');
const LIMIT = 100;

/** A clock that moves only when it is read. */
class SlowClock extends Clock {
  stepMs = 0;
  #nowMs = super.monotonicMs();

  override monotonicMs(): number {
    this.#nowMs += this.stepMs;
    return this.#nowMs;
  }
}

/** Overrides whose searches take as many steps as a list may take at least before it pauses. */
class SlowOverrides extends ActiveOverrides {
  steps = 65_536;

  override resolve(...check: Parameters<ActiveOverrides['resolve']>): number {
    turns.addSteps(this.steps);
    return super.resolve(...check);
  }
}

const control = new Control(allocateControl(1, 1));
new ClockPublisher(control);
const stats = control.acceptorStats(0);
const hasher = new Hasher(HASH_KEY);

class TestResponse {
  body: { data: { passed: boolean; limits: Record<string, unknown>[] } } | undefined;
  error: string | undefined;
  #abort = () => {};
  onAborted(handler: () => void): void {
    this.#abort = handler;
  }
  cork(write: () => void): void {
    write();
  }
  close(): void {
    this.#abort();
  }
}
const asUws = (res: TestResponse) => res as unknown as HttpResponse;
const asTest = (res: HttpResponse) => res as unknown as TestResponse;
const responder = {
  sendJson: (res: HttpResponse, body: Uint8Array) => {
    asTest(res).body = JSON.parse(Buffer.from(body).toString());
  },
  sendError: (res: HttpResponse, error: Error) => {
    asTest(res).error = error.message;
  },
} as unknown as Responder;

const record = rootKeyRecord('key', 'key', 0);
let clock: SlowClock;
let keyring: Keyring;
let known: KnownNamespaces;
let turns: Turns;
let overrides: SlowOverrides;
let checks: CheckHandler;
beforeEach(() => {
  clock = new SlowClock(control);
  keyring = new Keyring(clock);
  keyring.apply({ added: [record], removed: [] });
  known = new KnownNamespaces(
    (name) => hasher.namespace(name),
    (row) => stats.namespaceRow(row),
    () => {},
  );
  turns = new Turns(clock, stats);
  overrides = new SlowOverrides();
  const { engine } = new TestEngine('in-place', 1_024);
  checks = new CheckHandler({
    ...{ scanner: new BodyScanner(), finder: new NamespaceFinder(known) },
    ...{ keyring, hasher, clock, stats, overrides },
    ...{ engine, ids: new RequestIds() },
    recorder: new DecisionRecorder(new IdentifierRecorder(control, () => {}), {
      ...{ events: undefined, recent: undefined, overrides: new ActiveOverrides() },
    }),
    deferredResponses: new DeferredResponses(clock, stats),
    repeatable: new RepeatableRequests(engine.requests, keyring, hasher, stats),
    turns,
    responders: { v1: responder, v2: responder },
    onUnknownFields: () => {},
  });
  // One reading for each check: a slice of 2 ms has two.
  clock.stepMs = 0.9;
});

/** Exact overrides of identifiers. */
const tableOf = (identifiers: readonly string[], limit: number, spare?: SharedArrayBuffer) => {
  const set = new ExactOverrideSet(HASH_KEY);
  for (const [i, identifier] of identifiers.entries()) {
    const id = `rlor_${String(limit * 100 + i).padStart(24, '0')}`;
    const terms = { limit, durationMs: V2_DURATION_MAX_MS, isAsync: false };
    const names = { namespace: 'slow', isNamespacePattern: false, identifier };
    set.put({ row: i, id, ...names, ...terms });
  }
  return copyExact(set.table.buffer, spare);
};

const send = (identifiers: readonly string[], cost = 1) => {
  const res = new TestResponse();
  const items = identifiers.map((identifier) => {
    return { namespace: 'slow', identifier, limit: LIMIT, duration: V2_DURATION_MAX_MS, cost };
  });
  const body = Buffer.from(JSON.stringify(items));
  try {
    checks.multiLimitV2(asUws(res), keyring.verify('Bearer key'), body);
  } catch (error) {
    responder.sendError(asUws(res), error);
  }
  return res;
};
const names = (count: number, prefix = 'id') => {
  return Array.from({ length: count }, (_, i) => `${prefix} ${i}`);
};
/** The number of turns until the response. */
const turnsUntil = async (res: TestResponse) => {
  for (let turns = 0; ; turns++) {
    if (res.body !== undefined || res.error !== undefined) return turns;
    await nextTurn();
  }
};

/** What is left of each. */
const remaining = async (identifiers: readonly string[]) => {
  const res = send(identifiers, 0);
  await turnsUntil(res);
  return res.body!.data.limits.map((limit) => limit.remaining);
};

test('a list that takes long goes on in later turns, and is decided as one', async () => {
  const ids = names(100);
  const res = send(ids);
  expect(res.body).toBeUndefined();
  expect(await turnsUntil(res)).toBeGreaterThan(20);
  expect(res.body!.data.limits.map(({ identifier }) => identifier)).toEqual(ids);
  expect(await remaining(ids)).toEqual(ids.map(() => LIMIT - 1));
  const denied = send([...names(99), 'too much'], LIMIT - 1);
  await turnsUntil(denied);
  expect(denied.body!.data.passed).toBe(true);
  const all = send([...names(98), 'new', 'id 98'], 2);
  await turnsUntil(all);
  expect(all.body!.data.passed).toBe(false);
  expect(await remaining(['new', 'id 99'])).toEqual([LIMIT, LIMIT - 1]);
});

test('a list without long searches is decided in its turn, if the thread has no CPU as well', () => {
  overrides.steps = 0;
  const ids = names(100);
  clock.stepMs = 60;
  expect(send(ids).body!.data.limits.map(({ identifier }) => identifier)).toEqual(ids);
});

test('several lists get a slice in turn, and a short one waits for no long one', async () => {
  const long = [0, 1, 2].map((number) => send(names(40, `long ${number}`)));
  for (const _ of long) await nextTurn();
  const short = send(['short']);
  expect(await turnsUntil(short)).toBeLessThanOrEqual(1);
  const turns = await Promise.all(long.map(turnsUntil));
  // One list alone takes about 20 turns.
  expect(Math.min(...turns)).toBeGreaterThan(30);
  expect(Math.max(...turns) - Math.min(...turns)).toBeLessThanOrEqual(6);
});

test('a list whose client disconnects before it is decided counts nothing', async () => {
  const ids = names(40);
  const res = send(ids);
  await nextTurn();
  res.close();
  const other = send(names(40, 'other'));
  await turnsUntil(other);
  expect([res.body, await remaining(ids)]).toEqual([undefined, ids.map(() => LIMIT)]);
});

test('overrides are used by lists that are decided, and by no other', async () => {
  const ids = names(40);
  overrides.activate({ exact: tableOf(ids, 50) });
  const used = async (end: (res: TestResponse) => void) => {
    const before = stats.get(ACCEPTOR_STAT.overriddenChecks);
    const res = send(ids);
    await nextTurn();
    end(res);
    for (let turn = 0; turn < 40; turn++) await nextTurn();
    return stats.get(ACCEPTOR_STAT.overriddenChecks) - before;
  };
  expect(await used((res) => res.close())).toBe(0);
  expect(await used(() => {})).toBe(ids.length);
  // Rows of an earlier table may belong to other overrides: those of earlier turns do not count.
  const last = await used(() => overrides.activate({ exact: tableOf(ids, 60) }));
  expect(last).toBeGreaterThan(0);
  expect(last).toBeLessThan(ids.length);
});

test('an error in a later turn is the response', async () => {
  const res = send(names(40));
  await nextTurn();
  const { resolve } = overrides;
  overrides.resolve = () => {
    throw new Error('damaged');
  };
  await turnsUntil(res);
  overrides.resolve = resolve;
  expect(res.error).toBe('damaged');
});

test('a list whose key is revoked before it is decided counts nothing', async () => {
  const res = send(names(40));
  await nextTurn();
  keyring.apply({ added: [], removed: [record] });
  await turnsUntil(res);
  expect(res.error).toBe('the API key was revoked');
  keyring.apply({ added: [record], removed: [] });
  expect(await remaining(['id 0', 'id 39'])).toEqual([LIMIT, LIMIT]);
});

test('a list whose namespace is deleted before it is decided gets a 503', async () => {
  known.apply({
    registeredNamespaces: [{ id: 'rlns_slow', name: 'slow', key: 'slow', statsRow: 0 }],
  });
  const res = send(names(40));
  await nextTurn();
  known.apply({
    deletedNamespaces: [{ name: 'slow', key: 'slow', successorKey: 'rlns_1.slow' }],
  });
  await turnsUntil(res);
  expect(res.error).toBe('a namespace of the list was deleted meanwhile; nothing was counted');
});

test('each check of a list has the override that is active in its turn', async () => {
  const ids = names(40);
  const buffer = tableOf(ids, 50);
  overrides.activate({ exact: buffer });
  const res = send(ids);
  await nextTurn();
  overrides.activate({ exact: tableOf(ids, 60) });
  // As soon as the second table is active, the first buffer is used again.
  tableOf(ids, 70, buffer);
  await turnsUntil(res);
  const limits = res.body!.data.limits.map(({ limit, overrideId }) => [limit, overrideId]);
  const expected = (limit: number, i: number) => {
    return [limit, `rlor_${String(limit * 100 + i).padStart(24, '0')}`];
  };
  const first = limits.findIndex(([limit]) => limit === 60);
  expect(first).toBeGreaterThan(0);
  expect(limits).toEqual(ids.map((_, i) => expected(i < first ? 50 : 60, i)));
});

test('lists that wait are bounded: a further one gets a 503, and counts nothing', async () => {
  const before = stats.get(ACCEPTOR_STAT.shedLists);
  const waiting = Array.from({ length: LONG_REQUESTS_MAX }, (_, i) => send(names(10, `list ${i}`)));
  const rejected = send(names(10, 'rejected'));
  expect(rejected.error).toBe('too many lists of checks are being decided; nothing was counted');
  expect(stats.get(ACCEPTOR_STAT.shedLists) - before).toBe(1);
  await Promise.all(waiting.map(turnsUntil));
  expect(waiting.map(({ body }) => body!.data.passed)).toEqual(waiting.map(() => true));
  expect(await remaining(['rejected 0'])).toEqual([LIMIT]);
});
