/** The maximum of overrides with text between wildcards, which bounds the time of each check. */

import { describe, expect, test } from 'vitest';
import { INFIX_OVERRIDES_MAX, MIDDLE_MAX_CHARACTERS } from '../../../src/core/constants.ts';
import type { Store } from '../../../src/registry/store/store.ts';
import { LONGEST_WINDOW_MS } from '../../support/http.ts';
import type { Fields } from '../../support/operations.ts';
import { overrideId } from '../../support/override-model.ts';
import { waitUntil } from '../../support/server.ts';
import { addRecords } from '../../support/store.ts';
import { useServer } from '../../support/test-server.ts';

const MOST = INFIX_OVERRIDES_MAX;
/** An earlier version has stored so many. */
const STORED = MOST + 4;
const VALUES = { limit: 5, duration: LONGEST_WINDOW_MS };

const fill = (scopes: readonly [scope: string, count: number][]) => (store: Store) => {
  addRecords(store, 'namespaces', [
    { id: 'rlns_1', name: 'full', createdMs: 1 },
    { id: 'rlns_2', name: 'over', createdMs: 1 },
  ]);
  const fields = { limit: 5, durationMs: LONGEST_WINDOW_MS, isAsync: false, createdMs: 1 };
  const overrides = scopes.flatMap(([scope, count], first) => {
    return Array.from({ length: count }, (_, i) => {
      const id = overrideId(10_000 * first + i);
      return { ...fields, id, scope, identifier: `*${i}-*-` };
    });
  });
  addRecords(store, 'overrides', overrides);
};

const MIDDLE = `"*text*" with at most ${MIDDLE_MAX_CHARACTERS} characters`;
const ACCEPTED = `at most one wildcard, or be ${MIDDLE}`;
const errorFor = (owner: string, what = 'overrides') => {
  return `${owner} the maximum of ${MOST} ${what} with text between wildcards`;
};

describe('the maximum of overrides with text between wildcards', () => {
  const server = useServer({
    hasSteppedClock: true,
    prepare: fill([
      ['rlns_1', MOST],
      ['rlns_2', STORED],
    ]),
  });
  const set = (namespaceName: string, identifier: string, fields: Fields = {}) => {
    return server.ok('ratelimits.setOverride', { ...VALUES, namespaceName, identifier, ...fields });
  };
  const setError = async (namespaceName: string, identifier: string) => {
    const body = { ...VALUES, namespaceName, identifier };
    const [status, message] = await server.errorOf('ratelimits.setOverride', body);
    expect(status).toBe(400);
    return message;
  };
  const remove = (namespaceName: string, identifier: string) => {
    return server.ok('ratelimits.deleteOverride', { namespaceName, identifier });
  };
  const limitOf = async (namespace: string, identifier: string) => {
    const check = { namespace, identifier, limit: 1_000, duration: LONGEST_WINDOW_MS, cost: 0 };
    return (await server.check(check)).limit;
  };

  test('rejects a further one in v1, v2 and an import, and says which are accepted', async () => {
    const reason = errorFor('the namespace "full" has');
    const message = `"identifier" must have ${ACCEPTED}; got "*a*b": ${reason}`;
    expect(await setError('full', '*a*b')).toBe(message);
    const item = { ...VALUES, namespaceName: 'full' };
    const overrides = [
      { ...item, identifier: 'other' },
      { ...item, identifier: '*a*b' },
    ];
    expect(await server.errorOf('ratelimits.importOverrides', { overrides })).toEqual([
      400,
      `overrides[1]: ${message}`,
    ]);
    const v2 = await server.errorOf('ratelimit.setOverride', {
      ...VALUES,
      namespace: 'full',
      identifier: '*a*b',
    });
    expect(v2).toEqual([400, message]);
    expect(await limitOf('full', 'other')).toBe(1_000);
  });

  test('counts no other patterns, and not those of another namespace', async () => {
    const middle = 'm'.repeat(MIDDLE_MAX_CHARACTERS);
    await set('full', `**${middle}*`);
    await set('full', 'a*b');
    await set('full', '***');
    await set('full', 'exact');
    await set('full', '10.0.0.0/8', { cidr: true });
    await set('free', '*a*b');
    expect(await setError('full', `*${middle}m*`)).toContain('the maximum of');
    expect(await limitOf('full', `x${middle}x`)).toBe(5);
    for (const identifier of [`**${middle}*`, 'a*b', '***', 'exact'])
      await remove('full', identifier);
  });

  test('is no maximum for stored ones: they apply, can be changed, and the log names them', async () => {
    const lines = server.stderr().split('\n').concat(server.stdout().split('\n'));
    const warnings = lines.filter((line) => line.includes('have text between wildcards'));
    expect(warnings).toHaveLength(1);
    expect(JSON.parse(warnings[0])).toMatchObject({
      most: MOST,
      namespaces: [{ namespace: 'over', overrides: STORED }],
    });
    expect(await limitOf('over', `${STORED - 1}-x-`)).toBe(5);
    await set('over', `*${STORED - 1}-*-`, { limit: 6 });
    expect(await limitOf('over', `${STORED - 1}-x-`)).toBe(6);
    for (let i = 0; i < STORED - MOST; i++) await remove('over', `*${i}-*-`);
    expect(await setError('over', '*a*b')).toContain(errorFor('the namespace "over" has'));
    await remove('over', `*${STORED - MOST}-*-`);
    await set('over', '*a*b');
  });

  test('has a place again after a deletion, an end, and the deletion of the namespace', async () => {
    await remove('full', '*0-*-');
    await set('full', '*a*b', { expires: server.nowMs() + 1_000 });
    expect(await setError('full', '*a*c')).toContain('the maximum of');
    server.stepClock(2_000);
    await waitUntil('it has ended', async () => (await limitOf('full', 'ab')) === 1_000);
    await set('full', '*a*c');
    expect(await setError('full', '*a*d')).toContain('the maximum of');
    await server.ok('ratelimits.deleteNamespace', { namespaceName: 'full' });
    await set('full', '*a*d');
    expect(await limitOf('full', 'ad')).toBe(5);
  });

  test('counts all namespace patterns as one namespace, and limits these themselves', async () => {
    const of = (namespaceName: string, identifier: string) => {
      return { ...VALUES, namespaceName, identifier };
    };
    const overrides = Array.from({ length: MOST }, (_, i) => of(`n${i}*`, `*${i}-*-`));
    await server.ok('ratelimits.importOverrides', { overrides });
    const together = errorFor('the namespace patterns together have');
    expect(await setError('other*', '*a*b')).toContain(together);
    expect(await setError('n0*', '*a*b')).toContain(together);
    await set('n0*', 'a*b');
    const patterns = Array.from({ length: MOST }, (_, i) => of(`n*${i}-*-`, 'user'));
    await server.ok('ratelimits.importOverrides', { overrides: patterns });
    expect(await setError('n*x*', 'user')).toBe(
      `"namespaceName" must have ${ACCEPTED}; got "n*x*": ` +
        errorFor('the server has', 'namespace patterns'),
    );
    // One that has an override may get another one.
    await set('n*0-*-', 'user_2');
    await remove('n*0-*-', 'user');
    expect(await setError('n*x*', 'user')).toContain('the maximum of');
    await remove('n*0-*-', 'user_2');
    await set('n*x*', 'user');
    expect(await limitOf('n-x-', 'user')).toBe(5);
  });
});
