/** Machines that share their limits through a real Redis, all on the thread of the test. */

import { afterEach, expect } from 'vitest';
import type { Check } from '../../../src/core/check.ts';
import type { Decision } from '../../../src/core/decision.ts';
import type { Identity } from '../../../src/core/hash.ts';
import { ACCEPTOR_STAT, type WORKER_STAT } from '../../../src/shared-memory/stats.ts';
import { checkOf, decideOne } from '../../support/engines.ts';
import type { RedisServer } from '../../support/programs/redis.ts';
import { RedisMachine, type RedisMachineOptions } from '../../support/redis-machine.ts';
import { connectMember } from './script-member.ts';
import { useEmptyRedis } from './use-redis.ts';

/** The windows are long: no test sees the end of one. */
export const LONG_WINDOW_MS = 2_592_000_000;
/** No call times out because the computer is busy. */
const PATIENT_MS = 2_000;

export type MachineOptions = Partial<RedisMachineOptions>;

export class TestMachine extends RedisMachine {
  constructor(url: string, options: MachineOptions = {}) {
    super(url, { timeoutMs: PATIENT_MS, openGraceMs: 0, hasBreaker: true, ...options });
  }

  count(stat: (typeof WORKER_STAT)[keyof typeof WORKER_STAT]): number {
    return this.control.workerStats(0).get(stat);
  }

  /** Checks that Redis did not answer in time, and that were denied. */
  get withdrawn(): number {
    return this.control.acceptorStats(0).get(ACCEPTOR_STAT.withdrawnChecks);
  }

  decide(identity: Identity, terms: Partial<Check>): Promise<Decision> {
    const check = { ...checkOf('', { limit: 100, durationMs: 1_000, ...terms }), identity };
    const decided = decideOne(this.engine, check, this.clock, () => {});
    // A check that is decided at once may have queued a report or a prefetch.
    this.worker.processEntries();
    return decided;
  }
}

export const identityOf = (identifier: string): Identity => checkOf(identifier).identity;

/**
 * Moves the clock of Redis forward: a member has seen a later one, on a server that is gone.
 * @returns the clock, Unix ms
 */
export async function moveClock({ port }: RedisServer, ms: number): Promise<number> {
  const member = await connectMember(port, `${'e'.repeat(16)}.0`, { isAvailable: true });
  try {
    const { clockUs } = await member.call([]);
    member.header.clockUs = clockUs + ms * 1_000;
    return (await member.call([])).clockUs / 1_000;
  } finally {
    member.close();
  }
}

/** The machines of a test, and their Redis. */
interface MachineGroup {
  readonly redis: RedisServer;
  /** Those that the test has started. */
  readonly machines: TestMachine[];
  /** Starts machines one after the other, and waits until they are members. */
  start: (count: number, options?: MachineOptions) => Promise<TestMachine[]>;
}

/**
 * Gives each test of a file an empty Redis, and closes its machines after the test.
 * @param defaults options of all machines
 */
export function machineGroup(defaults: MachineOptions = {}): MachineGroup {
  const machines: TestMachine[] = [];
  const redis = useEmptyRedis();
  afterEach(() => {
    for (const machine of machines.splice(0)) machine.close();
  });
  return {
    redis,
    machines,
    start: async (count, options) => {
      for (let n = 0; n < count; n++) {
        const machine = new TestMachine(redis.url, { ...defaults, ...options });
        machines.push(machine);
        const hasJoined = () => {
          for (const { worker } of machines) worker.probe();
          return machine.state.hasJoined(0);
        };
        await expect.poll(hasJoined).toBe(true);
      }
      return machines;
    },
  };
}
