/** Holds, and requests with a `requestId`, that the engine answers in a later turn of the loop. */

import { setImmediate as nextTurn } from 'node:timers/promises';
import { beforeEach, describe, expect, test, vi } from 'vitest';
import { IdentifierRecorder } from '../../src/analytics/recorder.ts';
import { BodyScanner } from '../../src/api/common/body-scanner.ts';
import { NamespaceFinder } from '../../src/api/common/namespace-finder.ts';
import { RequestIds } from '../../src/api/common/request-ids.ts';
import { NO_LEASE_ID, NO_RESERVATION_ID } from '../../src/api/texts/examples.ts';
import { Keyring } from '../../src/auth/keyring.ts';
import { rootKeyRecord } from '../../src/auth/keys.ts';
import { ApiError } from '../../src/core/errors.ts';
import { Hasher } from '../../src/core/hash.ts';
import { DecisionRecorder } from '../../src/decision-thread/decision-recorder.ts';
import type { Engine } from '../../src/engine/engine.ts';
import type { HoldEngine } from '../../src/engine/hold-engine.ts';
import type { RequestAnswer } from '../../src/engine/request-engine.ts';
import type { DecisionEvent } from '../../src/events/decision-event.ts';
import type { EventRecorder } from '../../src/events/event-recorder.ts';
import { ActiveOverrides, type OverridableCheck } from '../../src/overrides/active.ts';
import { KnownNamespaces } from '../../src/registry/known-namespaces.ts';
import { type CheckBodyHandler, CheckHandler } from '../../src/server/checks.ts';
import { CorrectionHandler } from '../../src/server/corrections.ts';
import { DeferredResponses } from '../../src/server/deferred-responses.ts';
import { HoldHandler } from '../../src/server/holds.ts';
import { RepeatableRequests } from '../../src/server/repeatable-requests.ts';
import type { Responder } from '../../src/server/responder.ts';
import { Turns } from '../../src/server/turns.ts';
import type { HttpResponse } from '../../src/server/uws.ts';
import { Clock, ClockPublisher } from '../../src/shared-memory/clock.ts';
import { allocateControl, Control } from '../../src/shared-memory/control.ts';
import { ACCEPTOR_STAT, NAMESPACE_STAT } from '../../src/shared-memory/stats.ts';
import { TestEngine } from '../support/engines.ts';

const NAMESPACE = 'deferred';
const WINDOW = { namespace: NAMESPACE, limit: 10, duration: 60_000 };
const TTL = { ttl: 60_000 };
const OVERRIDDEN_LIMIT = 7;

const control = new Control(allocateControl(1, 1));
new ClockPublisher(control);
const clock = new Clock(control);
const stats = control.acceptorStats(0);
const hasher = new Hasher(Buffer.from('0123456789abcdef'));

/** A response of uWebSockets.js, as far as a deferred one needs it. */
class TestResponse {
  readonly answers: unknown[] = [];
  isCorked = false;
  abort = () => {};
  onAborted(handler: () => void): void {
    this.abort = handler;
  }
  cork(write: () => void): void {
    this.isCorked = true;
    write();
    this.isCorked = false;
  }
}
const asUws = (res: TestResponse) => res as unknown as HttpResponse;
const send = (res: HttpResponse, answer: unknown) => {
  const test = res as unknown as TestResponse;
  if (!test.isCorked) throw new Error('a deferred response was written without a cork');
  test.answers.push(answer);
};
const responder = {
  sendJson: (res: HttpResponse, body: string | Uint8Array) => {
    send(res, JSON.parse(Buffer.from(body).toString()));
  },
  sendError: (res: HttpResponse, error: unknown) => send(res, String(error)),
} as unknown as Responder;

/** One applies to each check. */
class TestOverrides extends ActiveOverrides {
  override resolve(check: OverridableCheck): number {
    check.limit = OVERRIDDEN_LIMIT;
    return 0;
  }
}

/** The engine in memory: it does what it is asked in the turn of the call, and answers in the next. */
function newDeferredEngine(): Engine {
  const { engine } = new TestEngine('in-place', 1_024);
  const methods: (keyof HoldEngine)[] = [
    ...(['reserve', 'namespacesOf', 'commit', 'cancel', 'acquire', 'renew', 'release'] as const),
    ...(['liveHolds', 'endLeases'] as const),
  ];
  for (const name of methods) {
    const method: (...args: never[]) => unknown = engine.holds[name].bind(engine.holds);
    const later = async (...args: never[]) => {
      const answer = structuredClone(method(...args));
      await nextTurn();
      return answer;
    };
    vi.spyOn(engine.holds, name).mockImplementation(later as never);
  }
  const decide = engine.requests.decide.bind(engine.requests);
  const stored = new Map<string, { parameters: string; answer: RequestAnswer }>();
  engine.requests.decide = async (check, startedMs) => {
    const decision = structuredClone(decide(check, startedMs));
    await nextTurn();
    return decision;
  };
  engine.requests.answer = async (request, _startedMs, decide) => {
    const [key, parameters] = [JSON.stringify(request.key), JSON.stringify(request.parameters)];
    await nextTurn();
    const before = stored.get(key);
    if (before !== undefined) {
      const isSame = before.parameters === parameters;
      return isSame ? { ...before.answer, isRepetition: true } : undefined;
    }
    const answer = await decide();
    if (answer.allowed) stored.set(key, { parameters, answer });
    return { ...answer, isRepetition: false };
  };
  return engine;
}

function newRun(overrides = new ActiveOverrides()) {
  const keyring = new Keyring(clock);
  const record = rootKeyRecord('key', 'key', 0);
  keyring.apply({ added: [record], removed: [] });
  const known = new KnownNamespaces(
    (name) => hasher.namespace(name),
    (row) => stats.namespaceRow(row),
    () => {},
  );
  const engine = newDeferredEngine();
  const events: DecisionEvent[] = [];
  const eventRecorder = {
    selects: () => true,
    record: (event: DecisionEvent) => events.push(event),
  };
  const shared = {
    ...{ scanner: new BodyScanner(), finder: new NamespaceFinder(known) },
    ...{ keyring, hasher, clock, stats, overrides, engine },
    recorder: new DecisionRecorder(new IdentifierRecorder(control, () => {}), {
      events: eventRecorder as unknown as EventRecorder,
      ...{ recent: undefined, overrides },
    }),
    repeatable: new RepeatableRequests(engine.requests, keyring, hasher, stats),
    deferredResponses: new DeferredResponses(clock, stats),
    ...{ onUnknownFields: () => {}, turns: new Turns(clock, stats), ids: new RequestIds() },
    ...{ responder, responders: { v1: responder, v2: responder } },
    operations: { ask: () => Promise.reject(new Error('no operation asks the main thread')) },
  };
  const { limitV1 } = new CheckHandler(shared);
  const { reserve, commit, cancel, acquire, renew, release } = new HoldHandler(shared);
  const { reset } = new CorrectionHandler(shared);
  const key = keyring.verify('Bearer key');
  /** Its body is gone when the handler has returned, as that of a real request. */
  const start = (handler: CheckBodyHandler, fields: object): TestResponse => {
    const res = new TestResponse();
    const bytes = Buffer.from(JSON.stringify(fields));
    handler(asUws(res), key, bytes, { traceparent: undefined });
    bytes.fill(' ');
    return res;
  };
  const answerOf = async (res: TestResponse) => {
    await vi.waitUntil(() => res.answers.length > 0);
    return res.answers;
  };
  return {
    ...{ engine, events, known, start, answerOf },
    handlers: { limit: limitV1, reserve, commit, cancel, acquire, renew, release, reset },
    revokeKey: () => keyring.apply({ added: [], removed: [record] }),
    /** The only answer to a request. */
    call: async (handler: CheckBodyHandler, fields: object) => {
      const answers = await answerOf(start(handler, fields));
      expect(answers).toHaveLength(1);
      return answers[0] as Record<string, never>;
    },
    tokensAllowed: () => known.get(NAMESPACE)?.decisionCounts[NAMESPACE_STAT.tokensAllowed] ?? 0,
  };
}

const someTurns = async () => {
  for (let turn = 0; turn < 5; turn++) await nextTurn();
};
const count = (stat: (typeof ACCEPTOR_STAT)[keyof typeof ACCEPTOR_STAT]) => stats.get(stat);

let run: ReturnType<typeof newRun>;
beforeEach(() => {
  run = newRun();
});

/** Requests of the operations that decide, whose checks or identities are reused. */
const DECIDING = [
  ['reserve', { ...WINDOW, ...TTL }],
  ['acquire', { namespace: NAMESPACE, limit: 10, ...TTL }],
  ['reserve', { ...WINDOW, ...TTL, requestId: 'same' }],
  ['acquire', { namespace: NAMESPACE, limit: 10, ...TTL, requestId: 'same' }],
  ['limit', { ...WINDOW, requestId: 'same' }],
] as const;

describe.each(DECIDING)('%s with %o', (name, fields) => {
  test('is decided for its own identifier, and answered with its own values', async () => {
    const { handlers, start, answerOf } = run;
    const requests = [1, 2, 3].map((cost) => {
      return start(handlers[name], { ...fields, identifier: `id ${cost}`, cost, limit: cost + 4 });
    });
    expect(requests.map(({ answers }) => answers.length)).toEqual([0, 0, 0]);
    for (const [index, request] of requests.entries()) {
      const cost = index + 1;
      const left = name === 'acquire' ? { inUse: cost } : { remaining: 4 };
      expect(await answerOf(request)).toMatchObject([{ success: true, limit: cost + 4, ...left }]);
    }
  });

  test('is done and counted if its client disconnects, which gets nothing', async () => {
    const { handlers, start, tokensAllowed, call } = run;
    const dropped = count(ACCEPTOR_STAT.undeliveredResponses);
    const before = tokensAllowed();
    const res = start(handlers[name], { ...fields, identifier: 'gone', cost: 4 });
    res.abort();
    await someTurns();
    expect(res.answers).toEqual([]);
    const isCheck = name !== 'acquire';
    expect(tokensAllowed() - before).toBe(isCheck ? 4 : 0);
    expect(count(ACCEPTOR_STAT.undeliveredResponses) - dropped).toBe(isCheck ? 1 : 0);
    const own = { ...fields, identifier: 'gone', cost: 3, requestId: 'next' };
    const left = isCheck ? { remaining: 3 } : { inUse: 7 };
    expect(await call(handlers[name], own)).toMatchObject(left);
  });

  test('gets the error of the engine, and is not counted', async () => {
    const { handlers, engine, tokensAllowed, call } = run;
    const before = tokensAllowed();
    const fail = async () => {
      await nextTurn();
      throw new ApiError('SERVICE_UNAVAILABLE', 'Redis does not respond');
    };
    vi.spyOn(engine.holds, 'reserve').mockImplementation(fail);
    vi.spyOn(engine.holds, 'acquire').mockImplementation(fail);
    engine.requests.answer = fail;
    const answer = await call(handlers[name], { ...fields, identifier: 'failed', cost: 1 });
    expect(answer).toBe('Error: Redis does not respond');
    expect([tokensAllowed() - before, run.events.length]).toEqual([0, 0]);
  });
});

describe.each(DECIDING.slice(2))('%s with a requestId', (name, fields) => {
  test('is not decided if its key was revoked before', async () => {
    const { handlers, start, answerOf, revokeKey, engine, tokensAllowed } = run;
    const decide = vi.spyOn(engine.requests, 'decide');
    const before = tokensAllowed();
    const res = start(handlers[name], { ...fields, identifier: 'a', cost: 1 });
    revokeKey();
    expect(await answerOf(res)).toEqual(['Error: the API key was revoked']);
    expect(decide).not.toHaveBeenCalled();
    expect(engine.holds.reserve).not.toHaveBeenCalled();
    expect(engine.holds.acquire).not.toHaveBeenCalled();
    expect(tokensAllowed()).toBe(before);
  });

  test('is no decision if it is a repetition, and a conflict with other values', async () => {
    const { handlers, call, tokensAllowed, events } = run;
    const before = tokensAllowed();
    const own = { ...fields, identifier: 'a', cost: 2 };
    const first = await call(handlers[name], own);
    expect(await call(handlers[name], own)).toEqual(first);
    expect(await call(handlers[name], { ...own, cost: 3 })).toMatch(/^Error: "requestId" must be/);
    // The tokens of a lease are not those of checks.
    const tokens = name === 'acquire' ? 0 : 2;
    expect([tokensAllowed() - before, events.length]).toEqual([tokens, 1]);
  });
});

test('a reservation of several checks is answered and recorded with its own', async () => {
  const { handlers, start, answerOf, events } = run;
  const list = (...costs: number[]) => ({
    checks: costs.map((cost) => ({ ...WINDOW, identifier: `id ${cost}`, cost })),
    ...TTL,
  });
  const requests = [list(1, 2), list(3)].map((fields) => start(handlers.reserve, fields));
  const remaining = async (res: TestResponse) => {
    const [answer] = (await answerOf(res)) as { checks: { remaining: number }[] }[];
    return answer.checks.map((check) => check.remaining);
  };
  expect(await Promise.all(requests.map(remaining))).toEqual([[9, 8], [7]]);
  expect(events.map(({ identifier, cost }) => [identifier, cost])).toEqual([
    ...[['id 1', 1] as const, ['id 2', 2] as const, ['id 3', 3] as const],
  ]);
});

test('the event of a check with a requestId has the fields of its body', async () => {
  const { handlers, call, events } = run;
  const fields = { ...WINDOW, identifier: 'é', cost: 2, requestId: 'own', meta: { a: 1 } };
  await call(handlers.limit, fields);
  expect(events).toMatchObject([{ identifier: 'é', cost: 2, request: { meta: '{"a":1}' } }]);
});

describe.each(DECIDING.filter(([name]) => name !== 'acquire'))('%s with %o', (name, fields) => {
  test.each([
    ['is counted', false, 1],
    ['is not counted after an activation, when its row may be of another', true, 0],
  ])('the use of an override %s', async (_, isActivated, uses) => {
    const overrides = new TestOverrides();
    const { handlers, start, answerOf } = newRun(overrides);
    const before = [count(ACCEPTOR_STAT.overriddenChecks), stats.usage.count(0)];
    const res = start(handlers[name], { ...fields, identifier: 'a', cost: 1 });
    if (isActivated) overrides.activate({});
    expect(await answerOf(res)).toMatchObject([{ limit: OVERRIDDEN_LIMIT }]);
    const after = [count(ACCEPTOR_STAT.overriddenChecks), stats.usage.count(0)];
    expect(after.map((value, index) => value - before[index])).toEqual([uses, uses]);
  });
});

describe.each([
  ['commit', 'reservationId', { cost: 1 }, { charged: 1, released: 4 }],
  ['cancel', 'reservationId', {}, { released: 5 }],
  ['renew', 'leaseId', TTL, { success: true, inUse: 5 }],
  ['release', 'leaseId', {}, { released: 5 }],
] as const)('%s', (name, idName, fields, result) => {
  const unknownId = idName === 'leaseId' ? NO_LEASE_ID : NO_RESERVATION_ID;
  const unknown =
    name === 'renew'
      ? expect.objectContaining({ success: false })
      : expect.stringMatching(/^Error: there is no /);
  const newHold = async (): Promise<string> => {
    const { handlers, call } = run;
    const own = { ...WINDOW, ...TTL, identifier: 'a', cost: 5 };
    const { duration: _, ...lease } = own;
    const hold = await (idName === 'leaseId'
      ? call(handlers.acquire, lease)
      : call(handlers.reserve, own));
    return hold[idName];
  };

  test('is answered when its hold is found, and done', async () => {
    const { handlers, call } = run;
    const request = { [idName]: await newHold(), ...fields };
    expect(await call(handlers[name], request)).toMatchObject(result);
    expect(await call(handlers[name], { [idName]: unknownId, ...fields })).toEqual(unknown);
  });

  test('is done if its client disconnects, which gets nothing', async () => {
    const { handlers, start, engine } = run;
    const res = start(handlers[name], { [idName]: await newHold(), ...fields });
    res.abort();
    await someTurns();
    expect(res.answers).toEqual([]);
    expect(engine.holds[name]).toHaveBeenCalledTimes(1);
  });

  test('is not done if its key is revoked before its hold is found', async () => {
    const { handlers, start, answerOf, revokeKey, engine } = run;
    const res = start(handlers[name], { [idName]: await newHold(), ...fields });
    revokeKey();
    expect(await answerOf(res)).toEqual(['Error: the API key was revoked']);
    expect(engine.holds[name]).not.toHaveBeenCalled();
  });
});

test('a reset ends leases also if its client disconnects', async () => {
  const { handlers, call, start } = run;
  const lease = { namespace: NAMESPACE, identifier: 'a', limit: 10, ...TTL };
  await call(handlers.acquire, lease);
  const reset = { namespace: NAMESPACE, identifier: 'a', leases: true };
  const res = start(handlers.reset, reset);
  res.abort();
  await someTurns();
  expect(res.answers).toEqual([]);
  expect(await call(handlers.acquire, lease)).toMatchObject({ inUse: 1 });
  expect(await call(handlers.reset, reset)).toEqual({ cleared: 0, leases: 1 });
});
