/** Checks that the engine decides in a later turn of the loop than their request. */

import { setImmediate as nextTurn } from 'node:timers/promises';
import { beforeEach, expect, test, vi } from 'vitest';
import { IdentifierRecorder } from '../../src/analytics/recorder.ts';
import { BodyScanner } from '../../src/api/common/body-scanner.ts';
import { NamespaceFinder } from '../../src/api/common/namespace-finder.ts';
import { RequestIds } from '../../src/api/common/request-ids.ts';
import { Keyring } from '../../src/auth/keyring.ts';
import { rootKeyRecord } from '../../src/auth/keys.ts';
import { ApiError } from '../../src/core/errors.ts';
import { Hasher } from '../../src/core/hash.ts';
import { DecisionRecorder } from '../../src/decision-thread/decision-recorder.ts';
import type { Engine } from '../../src/engine/engine.ts';
import { ActiveOverrides } from '../../src/overrides/active.ts';
import { KnownNamespaces } from '../../src/registry/known-namespaces.ts';
import { CheckHandler } from '../../src/server/checks.ts';
import { DeferredResponses } from '../../src/server/deferred-responses.ts';
import { RepeatableRequests } from '../../src/server/repeatable-requests.ts';
import type { Responder } from '../../src/server/responder.ts';
import { Turns } from '../../src/server/turns.ts';
import type { HttpResponse } from '../../src/server/uws.ts';
import { Clock, ClockPublisher } from '../../src/shared-memory/clock.ts';
import { allocateControl, Control } from '../../src/shared-memory/control.ts';
import { ACCEPTOR_STAT, NAMESPACE_STAT } from '../../src/shared-memory/stats.ts';
import { TestEngine } from '../support/engines.ts';

const control = new Control(allocateControl(1, 1));
new ClockPublisher(control);
const clock = new Clock(control);
const stats = control.acceptorStats(0);
const hasher = new Hasher(Buffer.from('0123456789abcdef'));
const keyring = new Keyring(clock);
keyring.apply({ added: [rootKeyRecord('key', 'key', 0)], removed: [] });
const key = keyring.verify('Bearer key');
const known = new KnownNamespaces(
  (name) => hasher.namespace(name),
  (row) => stats.namespaceRow(row),
  () => {},
);

/** A response of uWebSockets.js, as far as a deferred one needs it. */
class TestResponse {
  readonly bodies: string[] = [];
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
const send = (res: HttpResponse, body: string) => {
  const test = res as unknown as TestResponse;
  if (!test.isCorked) throw new Error('a deferred response was written without a cork');
  test.bodies.push(body);
};
const responder = {
  sendJson: (res: HttpResponse, body: Uint8Array) => send(res, Buffer.from(body).toString()),
  sendError: (res: HttpResponse, error: unknown) => send(res, String(error)),
} as unknown as Responder;

/** Decides in place, but completes batches in the next turn, or fails them. */
function deferBatches(): { engine: Engine; failure: unknown } {
  const { engine } = new TestEngine('in-place', 1_024);
  const deferred = { engine, failure: undefined as unknown };
  const decide = engine.decideBatch.bind(engine);
  const decideLater: Engine['decideBatch'] = (checks, startedMs, context, completion) => {
    const { allowed, decisions } = decide(checks, startedMs, context, completion)!;
    const copied = { allowed, decisions: decisions.map((one) => ({ ...one })) };
    setImmediate(() => {
      if (deferred.failure === undefined) completion.complete(context, startedMs, checks, copied);
      else completion.fail(context, deferred.failure);
    });
    return undefined;
  };
  vi.spyOn(engine, 'decideBatch').mockImplementation(decideLater);
  return deferred;
}

let deferred: ReturnType<typeof deferBatches>;
let checks: CheckHandler;
beforeEach(() => {
  deferred = deferBatches();
  // No list takes so long that it pauses, however slow the machine is.
  vi.spyOn(clock, 'monotonicMs').mockReturnValue(clock.monotonicMs());
  checks = new CheckHandler({
    ...{ scanner: new BodyScanner(), finder: new NamespaceFinder(known) },
    ...{ keyring, hasher, clock, stats },
    ...{ overrides: new ActiveOverrides(), engine: deferred.engine, ids: new RequestIds() },
    recorder: new DecisionRecorder(new IdentifierRecorder(control, () => {}), {
      ...{ events: undefined, recent: undefined, overrides: new ActiveOverrides() },
    }),
    deferredResponses: new DeferredResponses(clock, stats),
    repeatable: new RepeatableRequests(deferred.engine.requests, keyring, hasher, stats),
    turns: new Turns(clock, stats),
    responders: { v1: responder, v2: responder },
    onUnknownFields: () => {},
  });
});

const bodyOf = (...identifiers: string[]) => {
  const items = identifiers.map((identifier) => {
    return { namespace: 'deferred', identifier, limit: 10, duration: 60_000, cost: 2 };
  });
  return Buffer.from(JSON.stringify(items));
};
const tokensAllowed = () =>
  known.get('deferred')?.decisionCounts[NAMESPACE_STAT.tokensAllowed] ?? 0;
const undelivered = () => stats.get(ACCEPTOR_STAT.undeliveredResponses);

test('a list that is decided later is answered with its own checks', async () => {
  const before = tokensAllowed();
  const responses = [new TestResponse(), new TestResponse()];
  // Both are read into the same objects.
  checks.multiLimitV2(asUws(responses[0]), key, bodyOf('é-one', 'two'));
  checks.multiLimitV2(asUws(responses[1]), key, bodyOf('three'));
  expect(responses.map(({ bodies }) => bodies.length)).toEqual([0, 0]);
  await nextTurn();
  const identifiers = responses.map(({ bodies: [body] }) => {
    const { data } = JSON.parse(body);
    expect(data.passed).toBe(true);
    return data.limits.map(({ identifier }: { identifier: string }) => identifier);
  });
  expect(identifiers).toEqual([['é-one', 'two'], ['three']]);
  expect(tokensAllowed() - before).toBe(6);
});

test('a list whose client disconnects is counted, and its response is dropped', async () => {
  const [before, droppedBefore] = [tokensAllowed(), undelivered()];
  const res = new TestResponse();
  checks.multiLimitV2(asUws(res), key, bodyOf('gone'));
  res.abort();
  await nextTurn();
  expect(res.bodies).toEqual([]);
  expect([tokensAllowed() - before, undelivered() - droppedBefore]).toEqual([2, 1]);
});

test('a list that cannot be decided gets the error of the engine, and is not counted', async () => {
  const before = tokensAllowed();
  deferred.failure = new ApiError('SERVICE_UNAVAILABLE', 'the engine is down');
  const res = new TestResponse();
  checks.multiLimitV2(asUws(res), key, bodyOf('failed'));
  await nextTurn();
  expect(res.bodies).toEqual(['Error: the engine is down']);
  expect(tokensAllowed()).toBe(before);
});
