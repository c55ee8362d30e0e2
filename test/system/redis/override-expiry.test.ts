/**
 * Overrides with an end, on machines that share a registry in a real Redis: each stops to apply
 * them by its own clock, and one of them removes the record.
 */

import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, describe, expect, test } from 'vitest';
import { makeOverrideId } from '../../../src/overrides/id.ts';
import { listAuditEntries } from '../../support/audit-log.ts';
import { trialCount } from '../../support/guarantees.ts';
import { LONGEST_WINDOW_MS, sendCheck } from '../../support/http.ts';
import { callOperation, callOperationOk, type Fields } from '../../support/operations.ts';
import { isRedisMissing } from '../../support/programs/redis.ts';
import { ROOT_KEY, type ServerProcess, waitUntil } from '../../support/server.ts';
import { readRecords } from '../../support/store.ts';
import { type Fault, Faults, type Machine, removeMachines, startMachine } from './machine.ts';
import { useServers, waitForStatus } from './servers.ts';
import { useEmptyRedis, useRedis } from './use-redis.ts';

const END_MS = 100;

const put = ({ writer, registry }: Machine, limit: number, expiresMs?: number) => {
  return writer.submit(10, () => {
    registry.ensureNamespace('names', 5);
    const { id: scope } = registry.namespaceByName('names')!;
    const id = registry.override(scope, { identifier: 'abc' })?.id ?? makeOverrideId();
    const values = { limit, durationMs: 1_000, isAsync: false, createdMs: 1 };
    const end = expiresMs === undefined ? {} : { expiresMs };
    registry.putOverride({ id, scope, identifier: 'abc', ...values, ...end });
    return {};
  });
};
const limitsOf = ({ registry }: Machine) => [...registry.overrides()].map(({ limit }) => limit);
const endsOf = ({ store }: Machine) => {
  return readRecords(store, 'audit').filter(({ by }) => by === 'expiry').length;
};

describe.skipIf(isRedisMissing)('machines with one Redis', () => {
  const redis = useEmptyRedis();
  const machines: (Machine & { clock: { nowMs: number }; faults: Faults })[] = [];
  afterEach(async () => {
    for (const machine of machines.splice(0)) await machine.kill();
    removeMachines();
  });
  const start = async () => {
    const [clock, faults] = [{ nowMs: 5 }, new Faults()];
    const machine = { ...(await startMachine(redis.url, { clock, faults })), clock, faults };
    machines.push(machine);
    return machine;
  };
  const waitForLimits = (limits: readonly number[]) => {
    return waitUntil(`all machines have ${limits}`, () => {
      return machines.every((machine) => `${limitsOf(machine)}` === `${limits}`);
    });
  };

  test('remove a record once, with one entry in the audit log, whichever is first', async () => {
    const all = [await start(), await start(), await start()];
    await put(all[0], 7, END_MS);
    await waitForLimits([7]);
    for (const machine of all) machine.clock.nowMs = END_MS;
    for (const { writer } of all) writer.removeEndedOverrides();
    await waitForLimits([]);
    // Each has tried by then.
    await Promise.all(all.map((machine, i) => put(machine, i)));
    await waitUntil('all are up to date', () => {
      return new Set(all.map(({ replicator }) => replicator.version)).size === 1;
    });
    expect(all.map(endsOf)).toEqual([1, 1, 1]);
  });

  test('never remove an override that was set again on another machine meanwhile', async () => {
    const [a, b] = [await start(), await start()];
    const faults: Fault[] = ['none', 'none', 'late', 'lost reply', 'lost', 'nonsense'];
    for (let trial = 0; trial < trialCount(24, 200); trial++) {
      await put(b, 1, END_MS);
      await waitForLimits([1]);
      const fault = faults[trial % faults.length];
      if (fault !== 'none') a.faults.commits.push(fault);
      a.clock.nowMs = END_MS;
      const isPermanent = trial % 2 === 0;
      a.writer.removeEndedOverrides();
      await sleep(trial % 4);
      // The clock of this machine is behind.
      await put(b, 2, isPermanent ? undefined : 2 * END_MS);
      a.clock.nowMs = END_MS + 1;
      a.writer.removeEndedOverrides();
      await waitForLimits([2]);
      a.faults.commits.length = 0;
      a.clock.nowMs = 5;
    }
  });

  test('that were away follow a later end, and none, that another machine has set', async () => {
    const [a, b] = [await start(), await start()];
    for (const later of [undefined, 10 * END_MS]) {
      await put(b, 1, END_MS);
      await waitForLimits([1]);
      a.faults.isCutOff = true;
      await put(b, 2, later);
      a.clock.nowMs = END_MS;
      a.writer.removeEndedOverrides();
      await waitUntil('its removal fails', () => a.replicator.isFailing);
      expect(limitsOf(a)).toEqual([1]);
      a.faults.isCutOff = false;
      a.writer.removeEndedOverrides();
      await waitForLimits([2]);
      a.clock.nowMs = 5;
    }
    expect([a, b].map(endsOf)).toEqual([0, 0]);
  });

  test('whose clock is behind follow the removal by another one', async () => {
    const [a, b] = [await start(), await start()];
    await put(b, 1, END_MS);
    await waitForLimits([1]);
    a.clock.nowMs = END_MS;
    a.writer.removeEndedOverrides();
    await waitForLimits([]);
    expect(b.published.at(-1)).toBeDefined();
    expect(b.clock.nowMs).toBe(5);
  });
});

describe.skipIf(isRedisMissing)('servers with one Redis', () => {
  const redis = useRedis();
  const { servers, start } = useServers(2);
  const override = { namespaceName: 'shared', identifier: 'abc', limit: 7 };
  const set = ({ port }: ServerProcess, inMs: number) => {
    const fields = { ...override, duration: LONGEST_WINDOW_MS, expires: Date.now() + inMs };
    return callOperationOk(port, 'ratelimits.setOverride', fields);
  };
  const limitOn = async ({ port }: ServerProcess) => {
    const check = { namespace: 'shared', identifier: 'abc', limit: 3, cost: 0 };
    return (await sendCheck(port, { ...check, duration: LONGEST_WINDOW_MS })).limit;
  };
  const waitForLimit = (limit: number) => {
    return waitUntil(`the limit is ${limit}`, async () => {
      const limits = await Promise.all(servers.map(limitOn));
      return limits.every((one) => one === limit);
    });
  };
  const endsOn = async (server: ServerProcess) => {
    return (await listAuditEntries(server)).filter(({ by }) => by === 'expiry').length;
  };

  test('stop to apply an override at its end, and record that once', async () => {
    await Promise.all([0, 1].map((i) => start(i, redis.url, { WEIR_ROOT_KEY: ROOT_KEY })));
    await set(servers[0], 2_000);
    await waitForLimit(7);
    await waitForLimit(3);
    for (const server of servers) {
      await waitUntil('the end is recorded', async () => (await endsOn(server)) === 1);
    }
    const query = { namespaceName: 'shared' };
    const { overrides } = await callOperationOk(servers[1].port, 'ratelimits.listOverrides', query);
    expect(overrides).toEqual([]);
  });

  test('stop to apply it without Redis too, and remove it when Redis is back', async () => {
    const [a, b] = servers;
    await set(a, 3_000);
    await waitForLimit(7);
    await redis.kill();
    await waitForStatus(b, 'degraded');
    expect(await limitOn(b)).toBe(7);
    await waitForLimit(3);
    for (const { port } of servers) {
      const { overrides } = await callOperationOk(port, 'ratelimits.exportOverrides');
      expect((overrides as Fields[]).map(({ identifier }) => identifier)).toEqual([]);
    }
    await redis.restart();
    for (const server of servers) {
      await waitUntil('the end is recorded', async () => {
        const { status } = await callOperation(server.port, 'audit.list');
        return status === 200 && (await endsOn(server)) === 2;
      });
    }
  });

  test('a start from the replica without Redis does not apply what has ended', async () => {
    const [a, b] = servers;
    await set(a, 2_500);
    await waitForLimit(7);
    await b.stop();
    await redis.kill();
    await waitForLimitOf(a, 3);
    const again = await start(1, redis.url, { WEIR_ROOT_KEY: ROOT_KEY });
    expect(await limitOn(again)).toBe(3);
    await redis.restart();
    for (const server of servers) {
      await waitUntil('the end is recorded', async () => (await endsOn(server)) === 3);
    }
  });

  const waitForLimitOf = (server: ServerProcess, limit: number) => {
    return waitUntil(`the limit is ${limit}`, async () => (await limitOn(server)) === limit);
  };
});
