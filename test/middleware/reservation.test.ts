/** Reservations of the package's `/fetch`, with a real server and with a recorded one. */

import { afterAll, describe, expect, test, vi } from 'vitest';
import { V2_DURATION_MAX_MS } from '../../src/core/constants.ts';
import { createLimiter } from '../../src/middleware/fetch.ts';
import { freePort, ROOT_KEY } from '../support/server.ts';
import { useServer } from '../support/test-server.ts';
import { startRecordedWeir } from './recorded-weir.ts';

const weir = useServer();

const emitWarning = vi.spyOn(process, 'emitWarning').mockImplementation(() => {});
afterAll(() => emitWarning.mockRestore());

const limiterWith = (more: object = {}) => {
  const window = { namespace: 'llm', limit: 100, duration: V2_DURATION_MAX_MS };
  return createLimiter({ url: weir.url, key: ROOT_KEY, timeoutMs: 60_000, ...window, ...more });
};
const RESERVE = { cost: 60, ttl: 60_000 };

describe('a reservation', () => {
  test('counts its tokens for checks until the commit, which returns the rest', async () => {
    const limiter = limiterWith();
    const reservation = await limiter.reserve({ identifier: 'a', ...RESERVE });
    expect(reservation).toEqual({
      allowed: true,
      headers: { RateLimit: expect.stringMatching(/^"llm";r=40;t=\d+$/) },
      quota: { limit: 100, remaining: 40, reset: expect.any(Number) },
      reservationId: expect.stringMatching(/^rlrs_/),
      commit: expect.any(Function),
      cancel: expect.any(Function),
    });
    expect((await limiter.check('a', 41)).allowed).toBe(false);
    const committed = { charged: 25, released: 35, late: false };
    expect(await reservation.commit(25)).toMatchObject(committed);
    expect(await reservation.commit(99)).toMatchObject(committed);
    expect((await limiter.check('a', 0)).quota?.remaining).toBe(75);
  });

  test('returns everything if it is cancelled', async () => {
    const limiter = limiterWith();
    const { cancel } = await limiter.reserve({ identifier: 'b', ...RESERVE });
    expect(await cancel()).toEqual({ released: 60 });
    expect((await limiter.check('b', 0)).quota?.remaining).toBe(100);
  });

  test('that is denied has nothing to end, and says when to try again', async () => {
    const limiter = limiterWith();
    await limiter.reserve({ identifier: 'c', ...RESERVE });
    const denied = await limiter.reserve({ identifier: 'c', ...RESERVE });
    expect([denied.allowed, denied.reservationId]).toEqual([false, null]);
    expect(Number(denied.headers['Retry-After'])).toBeGreaterThan(0);
    expect([await denied.commit(1), await denied.cancel()]).toEqual([{}, {}]);
    // It can never pass.
    const above = await limiter.reserve({ identifier: 'c', ...RESERVE, cost: 101 });
    expect(above.headers).toEqual({ RateLimit: '"llm";r=0' });
  });

  test.each(['allow', 'deny'] as const)('without weir has onError: %s', async (onError) => {
    const limiter = limiterWith({ url: `http://127.0.0.1:${await freePort()}`, onError });
    const reservation = await limiter.reserve({ identifier: 'a', ...RESERVE });
    expect([reservation.allowed, reservation.reservationId]).toEqual([onError === 'allow', null]);
    expect(reservation.error?.message).toContain('weir has not answered');
    expect(await reservation.commit(1)).toEqual({});
  });

  test('is committed again if the response is lost, and not if weir rejects the commit', async () => {
    const recorded = await startRecordedWeir();
    const { commit } = await limiterWith({ url: recorded.url }).reserve({
      identifier: 'a',
      ...RESERVE,
    });
    recorded.answers.commit = [undefined, undefined, undefined];
    const { error } = await commit(3);
    expect([error?.message, recorded.count('commit')]).toEqual([
      expect.stringContaining('weir has not answered'),
      3,
    ]);
    recorded.answers.commit = [undefined];
    expect(await commit(3)).toMatchObject({ charged: 3 });
    recorded.answers.commit = [{ error: 'NOT_FOUND' }];
    expect((await commit(3)).error?.message).toBe('weir answered 200: {"error":"NOT_FOUND"}');
    expect(recorded.count('commit')).toBe(6);
    expect(recorded.calls[0].body).toMatchObject({ algorithm: 'sliding', cost: 60, ttl: 60_000 });
    recorded.stop();
  });

  test.each([
    [{ identifier: '' }, '"identifier" must be a text that is not empty; got ""'],
    [{ cost: -1 }, '"cost" must be an integer from 0; got -1'],
    [{ ttl: 10 }, '"ttl" must be an integer number of milliseconds from 1000 to 86400000; got 10'],
    [{ limit: 5 }, '"limit" is none of identifier, cost, ttl'],
  ])('is not made with %j', async (more, message) => {
    const reserve = limiterWith().reserve({ identifier: 'a', ...RESERVE, ...more });
    await expect(reserve).rejects.toThrow(message);
  });

  test('is not committed with an invalid cost', async () => {
    const { commit } = await limiterWith().reserve({ identifier: 'd', ...RESERVE });
    await expect(commit(0.5)).rejects.toThrow('"cost" must be an integer from 0; got 0.5');
  });
});
