import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import type { CounterOperationRequest } from '../../src/api/operations/messages.ts';
import {
  COUNTER_OPERATION_TIMEOUT_MS,
  PENDING_COUNTER_OPERATIONS_MAX,
} from '../../src/core/constants.ts';
import { CounterOperations } from '../../src/runtime/counter-operations.ts';

const REQUEST: CounterOperationRequest = {
  operation: 'ratelimits.inspect',
  keyId: 'key_1',
  body: new Uint8Array(0),
};
const RESULT = { status: 200, body: '{}' };

describe('operations on counters', () => {
  let sent: [acceptor: number, number: number][];
  let operations: CounterOperations;
  beforeEach(() => {
    vi.useFakeTimers();
    sent = [];
    operations = new CounterOperations(3, (acceptor, number) => sent.push([acceptor, number]));
  });
  afterEach(() => vi.useRealTimers());

  test('go to each acceptor in turn, and get the result of their number', async () => {
    const results = [0, 1, 2, 3].map(() => operations.run(REQUEST));
    expect(sent).toEqual([
      [0, 0],
      [1, 1],
      [2, 2],
      [0, 3],
    ]);
    for (const [, number] of sent.toReversed()) {
      operations.complete(number, { ...RESULT, body: `${number}` });
    }
    expect((await Promise.all(results)).map(({ body }) => body)).toEqual(['0', '1', '2', '3']);
  });

  test('without an answer in time are a 503; a late answer is dropped', async () => {
    const late = expect(operations.run(REQUEST)).rejects.toMatchObject({
      code: 'SERVICE_UNAVAILABLE',
      message: `no acceptor answered within ${COUNTER_OPERATION_TIMEOUT_MS} ms; counters may have changed`,
    });
    vi.advanceTimersByTime(COUNTER_OPERATION_TIMEOUT_MS);
    await late;
    operations.complete(0, RESULT);
    const next = operations.run(REQUEST);
    operations.complete(1, RESULT);
    expect(await next).toEqual(RESULT);
  });

  test('are bounded: one more is a 503 and is not sent, until another one is answered', async () => {
    const pending = Array.from({ length: PENDING_COUNTER_OPERATIONS_MAX }, () => {
      return operations.run(REQUEST);
    });
    await expect(operations.run(REQUEST)).rejects.toThrow('too many operations wait');
    expect(sent.length).toBe(PENDING_COUNTER_OPERATIONS_MAX);
    operations.complete(0, RESULT);
    expect(await pending[0]).toEqual(RESULT);
    const next = operations.run(REQUEST);
    for (const [, number] of sent) operations.complete(number, RESULT);
    expect(await next).toEqual(RESULT);
    await Promise.all(pending);
  });
});
