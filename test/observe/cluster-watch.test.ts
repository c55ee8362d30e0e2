import { afterEach, beforeEach, expect, test } from 'vitest';
import type { Log } from '../../src/core/log.ts';
import type { ClusterStats } from '../../src/engine/engine.ts';
import { ClusterWatch } from '../../src/observe/cluster-watch.ts';
import { allocateControl, Control } from '../../src/shared-memory/control.ts';
import { ACCEPTOR_STAT, WORKER_STAT } from '../../src/shared-memory/stats.ts';

let control: Control;
let cluster: ClusterStats;
let records: string[];
let watch: ClusterWatch;

beforeEach(() => {
  control = new Control(allocateControl(1, 2));
  cluster = {
    connections: [true, true],
    hasJoined: true,
    isRecovering: false,
    isExact: false,
    machines: 2,
  };
  records = [];
  const write = (level: string) => (fields: object | string, text?: string) => {
    records.push(`${level} ${text ?? ''} ${JSON.stringify(fields)}`);
  };
  const log = { warn: write('warn'), info: write('info') } as unknown as Log;
  watch = new ClusterWatch(control, () => cluster, log);
});
afterEach(() => watch.close());

/** What a poll logs. */
function poll(): string[] {
  records = [];
  watch.poll();
  return records;
}

test('the loss of Redis is logged once, and its end with the decisions without it', () => {
  expect(poll()).toEqual([]);
  cluster.connections[1] = false;
  control.acceptorStats(0).add(ACCEPTOR_STAT.engineDownAllowed, 3);
  expect(poll()).toEqual([
    'warn Redis does not respond: WEIR_ON_ENGINE_DOWN decides checks {"workers":1,"of":2}',
  ]);
  control.acceptorStats(0).add(ACCEPTOR_STAT.engineDownDenied, 4);
  expect(poll()).toEqual([]);
  cluster.connections[1] = true;
  expect(poll()).toEqual(['info Redis responds again {"decisionsWithoutRedis":7}']);
  expect(poll()).toEqual([]);
});

test('decisions without Redis are logged also if no connection was lost, every 20 polls', () => {
  const decide = () => control.acceptorStats(0).add(ACCEPTOR_STAT.engineDownAllowed, 1);
  const slow = (count: number) => [
    `warn Redis was too slow for some checks {"decisionsWithoutRedis":${count}}`,
  ];
  decide();
  expect(poll()).toEqual(slow(1));
  for (let i = 0; i < 19; i++) {
    decide();
    expect(poll()).toEqual([]);
  }
  expect(poll()).toEqual(slow(19));
  for (let i = 0; i < 40; i++) expect(poll()).toEqual([]);
});

test('a recovery is logged at its beginning and at its end', () => {
  cluster.isRecovering = true;
  expect(poll()).toHaveLength(1);
  expect(poll()).toEqual([]);
  cluster.isRecovering = false;
  expect(poll()).toHaveLength(1);
  expect(poll()).toEqual([]);
});

test('a recovery that did not wait for all machines is logged once, for all shard workers', () => {
  for (const worker of [0, 1]) {
    control.workerStats(worker).add(WORKER_STAT.recoveriesComplete, 1);
    expect(poll()).toEqual([]);
  }
  control.workerStats(0).add(WORKER_STAT.recoveriesIncomplete, 1);
  expect(poll()).toEqual([
    expect.stringMatching(/^warn .*"a recovery did not wait for all machines/),
  ]);
  control.workerStats(1).add(WORKER_STAT.recoveriesIncomplete, 1);
  expect(poll()).toEqual([]);
});
