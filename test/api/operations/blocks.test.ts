/** Blocks of identifiers, on a server whose time is moved over their end. */

import { describe, expect, test } from 'vitest';
import { AMOUNT_MAX } from '../../../src/core/constants.ts';
import { formatDuration } from '../../../src/core/duration.ts';
import { listAuditEntries } from '../../support/audit-log.ts';
import { LONGEST_WINDOW_MS } from '../../support/http.ts';
import type { Fields } from '../../support/operations.ts';
import { DECIDE_MODES, waitUntil } from '../../support/server.ts';
import { useServer } from '../../support/test-server.ts';

const HOUR_MS = 3_600_000;
const TERMS = { limit: 1_000, duration: LONGEST_WINDOW_MS };
const CONNECTIONS = 8;

describe.each(DECIDE_MODES)('decided %s: a block', (mode) => {
  const server = useServer({ hasSteppedClock: true, args: ['--acceptors', '2', '--decide', mode] });
  const inHours = (hours: number) => server.nowMs() + hours * HOUR_MS;
  const check = (namespace: string, identifier: string) => {
    return server.check({ namespace, identifier, ...TERMS });
  };
  /** Consecutive connections may reach different acceptors. */
  const limitsOf = (namespace: string, identifier: string) => {
    const checks = Array.from({ length: CONNECTIONS }, () => check(namespace, identifier));
    return Promise.all(checks).then((all) => all.map(({ success, limit }) => [success, limit]));
  };
  const everywhere = (success: boolean, limit: number) => {
    return Array.from({ length: CONNECTIONS }, () => [success, limit]);
  };
  const setOverride = (namespaceName: string, identifier: string, limit: number) => {
    const values = { limit, duration: LONGEST_WINDOW_MS };
    return server.ok('ratelimits.setOverride', { namespaceName, identifier, ...values });
  };
  const block = (namespaceName: string, identifier: string, fields: Fields = {}) => {
    const expires = inHours(1);
    return server.ok('ratelimits.setBlock', { namespaceName, identifier, expires, ...fields });
  };
  const unblock = (namespaceName: string, identifier: string) => {
    return server.ok('ratelimits.deleteBlock', { namespaceName, identifier });
  };
  const explain = (namespace: string, identifier: string) => {
    return server.ok('ratelimits.explain', { namespace, identifier });
  };

  test('denies every check until it is deleted, and what applied before applies again', async () => {
    await setOverride('a', 'user_1', 50);
    await setOverride('a', 'user_*', 60);
    await setOverride('*', 'user_3', 70);
    for (const [identifier, limit] of [
      ['user_1', 50],
      ['user_2', 60],
      ['other', 1_000],
    ] as const) {
      expect(await limitsOf('a', identifier)).toEqual(everywhere(true, limit));
      await block('a', identifier);
      expect(await limitsOf('a', identifier)).toEqual(everywhere(false, 0));
      await unblock('a', identifier);
      expect(await limitsOf('a', identifier)).toEqual(everywhere(true, limit));
    }
  });

  test('denies asynchronous checks too', async () => {
    await setOverride('async', 'other', 1);
    await block('async', 'user_1');
    for (let i = 0; i < CONNECTIONS; i++) {
      const asked = { namespace: 'async', identifier: 'user_1', ...TERMS, async: true };
      expect(await server.check(asked)).toMatchObject({ success: false, remaining: 0 });
    }
  });

  test('ends at its time, with an entry in the audit log', async () => {
    await setOverride('ends', 'user_1', 50);
    const expires = inHours(2);
    const { blockId } = await block('ends', 'user_1', { expires, reason: 'spam' });
    await server.stepClock(HOUR_MS);
    expect(await limitsOf('ends', 'user_1')).toEqual(everywhere(false, 0));
    await server.stepClock(HOUR_MS + 1_000);
    await waitUntil('the block has ended', async () => {
      const limits = await limitsOf('ends', 'user_1');
      return limits.every(([success, limit]) => success === true && limit === 50);
    });
    const entriesOfBlock = async () => {
      const entries = await listAuditEntries(server);
      return entries.filter(({ target }) => (target as Fields).blockId === blockId);
    };
    await waitUntil('its end is recorded', async () => (await entriesOfBlock()).length === 2);
    const values = { expires, reason: 'spam' };
    const target = { blockId, namespace: 'ends', identifier: 'user_1' };
    expect(await entriesOfBlock()).toMatchObject([
      { action: 'block.delete', by: 'expiry', target, before: values },
      { action: 'block.create', target, after: values },
    ]);
    expect(await server.ok('ratelimits.listBlocks', { namespaceName: 'ends' })).toEqual({
      blocks: [],
      total: 0,
    });
  });

  test('is of the one identifier, in which a star is a character', async () => {
    await setOverride('star', 'vip_*', 50);
    await block('star', 'vip_*');
    expect(await limitsOf('star', 'vip_*')).toEqual(everywhere(false, 0));
    expect(await limitsOf('star', 'vip_1')).toEqual(everywhere(true, 50));
    await block('star', '');
    expect(await limitsOf('star', '')).toEqual(everywhere(false, 0));
  });

  test('keeps changes of the override that it hides', async () => {
    await setOverride('hides', 'user_1', 50);
    await block('hides', 'user_1');
    await setOverride('hides', 'user_1', 51);
    await setOverride('hides', 'user_2', 52);
    expect(await limitsOf('hides', 'user_1')).toEqual(everywhere(false, 0));
    const { overrides } = await server.ok('ratelimits.listOverrides', { namespaceName: 'hides' });
    expect(overrides).toMatchObject([
      { identifier: 'user_1', limit: 51 },
      { identifier: 'user_2', limit: 52 },
    ]);
    const exported = (await server.ok('ratelimits.exportOverrides')).overrides as Fields[];
    expect(exported.filter(({ limit }) => limit === 0)).toEqual([]);
    const selector = { namespaceName: 'hides', identifier: 'user_1' };
    await unblock('hides', 'user_1');
    expect(await limitsOf('hides', 'user_1')).toEqual(everywhere(true, 51));
    await block('hides', 'user_1');
    await server.ok('ratelimits.deleteOverride', selector);
    await unblock('hides', 'user_1');
    expect(await limitsOf('hides', 'user_1')).toEqual(everywhere(true, 1_000));
  });

  test('denies leases and reservations, and lets the leases that exist live', async () => {
    const lease = { namespace: 'leases', identifier: 'job', limit: 5, ttl: 60_000 };
    const { leaseId } = await server.ok('ratelimits.acquire', lease);
    await block('leases', 'job');
    expect(await server.ok('ratelimits.acquire', lease)).toMatchObject({
      success: false,
      limit: 0,
    });
    expect(await server.ok('ratelimits.renew', { leaseId, ttl: 60_000 })).toMatchObject({
      success: true,
    });
    const reservation = { namespace: 'leases', identifier: 'job', ...TERMS, cost: 1, ttl: 60_000 };
    expect(await server.ok('ratelimits.reserve', reservation)).toMatchObject({ success: false });
    await unblock('leases', 'job');
    expect(await server.ok('ratelimits.acquire', lease)).toMatchObject({ success: true, limit: 5 });
  });

  test('is shown by explain, with what applies after it', async () => {
    await setOverride('shown', 'user_*', 60);
    const expires = inHours(1);
    const { blockId } = await block('shown', 'user_1', { expires, reason: 'ticket 5512' });
    const explained = await explain('shown', 'user_1');
    expect(explained).toMatchObject({
      success: false,
      cause: 'blocked',
      block: { id: blockId, expires, reason: 'ticket 5512' },
      matchingOverrides: 1,
      otherOverrides: [{ identifier: 'user_*', rule: 'block' }],
      passesAt: expires,
      windows: [{ passesAt: expires, terms: { limit: { value: 0, from: 'block' } } }],
    });
    expect(explained).not.toHaveProperty('override');
    expect(explained.reason).toBe(
      `The check is denied: the identifier is blocked until ${new Date(expires).toISOString().replace('.000', '')}.` +
        ` Why: "ticket 5512". Then the override 60 per ${formatDuration(LONGEST_WINDOW_MS)} for "user_*" applies.`,
    );
    const { found } = await server.ok('ratelimits.findIdentifier', { identifier: 'user_1' });
    const [place] = (found as Fields[]).filter(
      ({ namespace }) => (namespace as Fields).name === 'shown',
    );
    expect(place.block).toEqual(explained.block);
    await check('shown', 'user_1');
    const recent = (await explain('shown', 'user_1')).recent;
    expect(recent).toMatchObject({ lastDenied: { source: 'block', override: blockId } });
    const prefix = { prefix: 'user_', namespaceName: 'shown' };
    const { identifiers } = await server.ok('analytics.searchIdentifiers', prefix);
    expect(identifiers).toMatchObject([
      { identifier: 'user_1', sources: expect.arrayContaining(['block']) },
    ]);
    const { blocks } = await server.ok('ratelimits.listBlocks', { namespaceName: 'shown' });
    expect(blocks).toMatchObject([
      { id: blockId, namespaceName: 'shown', identifier: 'user_1', usage: { applied: 1 } },
    ]);
  });

  test('that is set again keeps its id, and gets the new end and reason', async () => {
    const [first, second] = [inHours(1), inHours(3)];
    await setOverride('again', 'other', 1);
    const { blockId } = await block('again', 'user_1', { expires: first, reason: 'why' });
    expect(await block('again', 'user_1', { expires: second })).toEqual({ blockId });
    const { blocks } = await server.ok('ratelimits.listBlocks', { namespaceName: 'again' });
    expect(blocks).toMatchObject([{ id: blockId, expires: second }]);
    expect((blocks as Fields[])[0]).not.toHaveProperty('reason');
    const [entry] = await listAuditEntries(server);
    expect(entry).toMatchObject({
      action: 'block.update',
      before: { expires: first, reason: 'why' },
      after: { expires: second },
    });
  });
});

describe('after a restart, a block', () => {
  const server = useServer();
  const check = async () => {
    const { success, limit } = await server.check({ namespace: 'kept', identifier: 'u', ...TERMS });
    return [success, limit];
  };

  test('denies checks, and what it hides applies again after its end', async () => {
    const namespaceName = 'kept';
    await server.ok('ratelimit.setOverride', {
      namespace: 'kept',
      identifier: 'u',
      limit: 50,
      duration: LONGEST_WINDOW_MS,
    });
    const place = { namespaceName, identifier: 'u' };
    await server.ok('ratelimits.setBlock', { ...place, expires: AMOUNT_MAX });
    await server.expectStop();
    await server.start();
    expect(await check()).toEqual([false, 0]);
    await server.ok('ratelimits.deleteBlock', place);
    expect(await check()).toEqual([true, 50]);
  });
});
