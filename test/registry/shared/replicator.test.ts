/** What other machines learn from the reports of a machine. */

import { expect, test, vi } from 'vitest';
import { openLog } from '../../../src/core/log.ts';
import type { ReadReply, SharedRegistryClient } from '../../../src/registry/shared/client.ts';
import type { Replica } from '../../../src/registry/shared/replica.ts';
import { Replicator } from '../../../src/registry/shared/replicator.ts';

const MARK = { history: '', version: 7, commit: '', earlier: [], hashKey: new Uint8Array() };

test('the last report of a machine says that it has stopped, also if a poll is under way', async () => {
  const reports: unknown[] = [];
  let answer: ((reply: ReadReply) => void) | undefined;
  const client = {
    read: () => {
      return new Promise<ReadReply>((resolve) => {
        answer = resolve;
      });
    },
    report: async (machine: string, text: string) => {
      reports.push([machine, JSON.parse(text)]);
    },
  } as unknown as SharedRegistryClient;
  const replica = { mark: MARK, isStoreBehind: false } as unknown as Replica;
  const log = openLog('silent');
  const replicator = new Replicator({ client, replica, log, syncMs: 10, nowMs: () => 0 });
  replicator.start({ machine: 'a', describe: () => ({ pid: 1 }) });
  await vi.waitUntil(() => answer !== undefined);
  await replicator.stop(() => answer?.({ status: 'same', head: { ...MARK, settlingMs: 0 } }));
  expect(reports).toEqual([['a', { pid: 1, version: 7, isStopped: true }]]);
});
