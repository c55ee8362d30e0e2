/** The registry in a Redis with Sentinels, and in a cluster. */

import { afterEach, describe, expect, test } from 'vitest';
import { slotOfKey } from '../../../src/redis/slot.ts';
import { isRedisMissing, startCluster, startSentinels } from '../../support/programs/redis.ts';
import { waitUntil } from '../../support/server.ts';
import { type Machine, removeMachines, startMachine } from './machine.ts';

describe.skipIf(isRedisMissing)('the registry', () => {
  const machines: Machine[] = [];
  let close = async () => {};
  afterEach(async () => {
    for (const machine of machines.splice(0)) await machine.kill();
    await close();
    removeMachines();
  });

  const start = async (url: string) => {
    machines.push(await startMachine(url), await startMachine(url));
  };
  /** Creates a namespace on a machine, as often as needed, and waits until all have it. */
  const requireChange = async ({ writer, registry }: Machine, name: string) => {
    await waitUntil(`${name} is acknowledged`, () => {
      const work = () => {
        registry.ensureNamespace(name, 5);
        return {};
      };
      return writer.submit(10, work).then(
        () => true,
        () => false,
      );
    });
    await waitUntil(`all machines have ${name}`, () => {
      return machines.every((machine) => machine.registry.namespaceByName(name) !== undefined);
    });
  };
  const names = () => machines.map(({ registry }) => registry.namespaces().map(({ name }) => name));

  test('goes on after a failover of Sentinels, with what was acknowledged before', async () => {
    const sentinels = await startSentinels();
    close = sentinels.close;
    await start(sentinels.url);
    await requireChange(machines[0], 'before');
    await (await sentinels.primary()).kill();
    await requireChange(machines[1], 'after');
    expect(names()).toEqual([
      ['before', 'after'],
      ['before', 'after'],
    ]);
  });

  test('goes on while its slot moves to another node of a cluster, and afterwards', async () => {
    const cluster = await startCluster(3);
    close = cluster.close;
    await start(cluster.url);
    await requireChange(machines[0], 'before');
    const slot = slotOfKey('{registry}');
    const owner = await cluster.ownerOf(slot);
    const other = cluster.nodes.find((node) => node !== owner)!;
    const finishMove = await cluster.beginMove(slot, other);
    expect(names()).toEqual([['before'], ['before']]);
    await finishMove();
    await requireChange(machines[1], 'after');
    expect(names()).toEqual([
      ['before', 'after'],
      ['before', 'after'],
    ]);
  });
});
