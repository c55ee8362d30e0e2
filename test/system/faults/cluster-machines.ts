/**
 * Machines of a cluster that a test kills, stops, cuts off and starts again: servers with one
 * Redis, each behind a proxy of its own and with a data directory of its own.
 */

import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { readMetrics } from '../../support/http.ts';
import type { RedisServer } from '../../support/programs/redis.ts';
import { isReady } from '../../support/readiness.ts';
import {
  type ExitStatus,
  ROOT_KEY,
  removeDirectory,
  type ServerOptions,
  type ServerProcess,
  spawnServer,
  suspendProcess,
  temporaryDirectory,
  waitUntil,
  waitUntilServing,
} from '../../support/server.ts';
import { type DelayProxy, type NetworkConditions, startDelayProxy } from '../redis/delay-proxy.ts';

const SIZES = ['--acceptors', '1', '--workers', '1', '--counters', '16384'];
/** The delay of each machine's connections to Redis, one way. */
const NETWORK = { delayMs: 0.2, jitterMs: 0.2 };
/** Metrics of decisions that Redis did not prove, summed over their labels. */
const COUNTED = {
  unproven: 'weir_unproven_denials_total{cause="recall"',
  withoutRedis: 'weir_engine_down_decisions_total',
  deniedWithoutRedis: 'weir_engine_down_decisions_total{outcome="denied"',
  /** Denials by a Redis that waited for the reports of machines. */
  recoveryDenials: 'weir_unproven_denials_total{cause="recovery"',
  /** Of machines that did not answer. Redis then denies as if the tokens were used. */
  writtenOff: 'weir_leases_written_off_total',
} as const;
const COUNT_NAMES = Object.keys(COUNTED) as (keyof typeof COUNTED)[];
const FAKETIME_LIBRARY = '/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1';

export interface MachineOptions extends Pick<ServerOptions, 'args' | 'env' | 'execArgv'> {
  /** Whether the test can step the clock of the system that the server sees. */
  hasFakeClock?: boolean;
  /** Between each machine and Redis, if not `NETWORK`. */
  network?: Partial<NetworkConditions>;
}

export type UnprovenCounts = Record<keyof typeof COUNTED, number>;

export function sumCounts(all: readonly UnprovenCounts[]): UnprovenCounts {
  const sums = COUNT_NAMES.map((name) => [name, all.reduce((sum, one) => sum + one[name], 0)]);
  return Object.fromEntries(sums) as UnprovenCounts;
}

export class Machine {
  readonly proxy: DelayProxy;
  /** Of files about the server; the server has its data in a folder. */
  readonly directory = temporaryDirectory();
  /** Whether clients send checks to it, as a load balancer would. */
  isServing = false;
  /** Those of the runs that have ended count up to the last time that they were read. */
  counts = sumCounts([]);
  /** Of the next start. */
  options: MachineOptions;
  readonly #prefix: string;
  #server: ServerProcess | undefined;
  #countsBefore = this.counts;

  constructor(proxy: DelayProxy, prefix: string, options: MachineOptions) {
    this.proxy = proxy;
    this.#prefix = prefix;
    this.options = options;
    mkdirSync(join(this.directory, 'data'));
    this.stepClock(0);
  }

  get server(): ServerProcess {
    if (this.#server === undefined) throw new Error('the machine was never started');
    return this.#server;
  }

  get port(): number {
    return this.server.port;
  }

  /**
   * Starts the server, again with its data directory.
   * @param isServingEarly clients use it before it has joined
   */
  async start({ isServingEarly = false } = {}): Promise<void> {
    await this.launch();
    await waitUntilServing(this.server);
    this.isServing = isServingEarly;
    await this.waitUntilReady();
    this.isServing = true;
  }

  /** Starts the process, which does not listen yet. */
  async launch(): Promise<void> {
    const { args = [], env, execArgv, hasFakeClock = false } = this.options;
    this.#countsBefore = this.counts;
    this.#server = await spawnServer(join(this.directory, 'data'), {
      args: [...SIZES, ...args],
      ...(execArgv && { execArgv }),
      env: {
        WEIR_ROOT_KEY: ROOT_KEY,
        WEIR_ENGINE: 'redis',
        WEIR_REDIS_URL: `redis://127.0.0.1:${this.proxy.port}`,
        WEIR_REDIS_PREFIX: this.#prefix,
        WEIR_ON_ENGINE_DOWN: 'deny',
        ...(hasFakeClock && {
          LD_PRELOAD: FAKETIME_LIBRARY,
          FAKETIME_TIMESTAMP_FILE: this.#clockPath,
          FAKETIME_NO_CACHE: '1',
          FAKETIME_DONT_FAKE_MONOTONIC: '1',
        }),
        ...env,
      },
    });
  }

  /** It has joined, and Redis answers it. */
  async waitUntilReady(): Promise<void> {
    await waitUntil(`it is ready: ${this.server.stderr()}`, () => this.isReady());
  }

  async isReady(): Promise<boolean> {
    return isReady(this.server);
  }

  /** Ends faults that a failed test has left, and starts the server if it has ended. */
  async restore(): Promise<void> {
    this.proxy.heal();
    this.stepClock(0);
    const { exitCode, signalCode } = this.#server?.child ?? { exitCode: 0, signalCode: null };
    if (exitCode !== null || signalCode !== null) await this.start();
    else this.resume();
  }

  /** SIGSTOP: connections stay open. */
  suspend(): Promise<void> {
    return suspendProcess(this.server);
  }

  resume(): void {
    this.server.child.kill('SIGCONT');
  }

  /** SIGKILL. */
  async kill(): Promise<void> {
    await this.readCounts();
    this.server.child.kill('SIGKILL');
    await this.waitUntilEnded();
  }

  async waitUntilEnded(): Promise<void> {
    await this.server.exited;
    this.isServing = false;
  }

  /** SIGTERM. */
  async stop(): Promise<ExitStatus> {
    await this.readCounts();
    this.isServing = false;
    return this.server.stop();
  }

  /** Sets the clock that the server sees ahead of the true time. */
  stepClock(aheadMs: number): void {
    const seconds = aheadMs / 1_000;
    writeFileSync(this.#clockPath, `${seconds < 0 ? '' : '+'}${seconds}s\n`);
  }

  async readCounts(): Promise<UnprovenCounts> {
    const counts = { ...this.#countsBefore };
    for (const [name, value] of await readMetrics(this.server.adminUrl)) {
      for (const counted of COUNT_NAMES) {
        if (name.startsWith(COUNTED[counted])) counts[counted] += value;
      }
    }
    this.counts = counts;
    return counts;
  }

  async close(): Promise<void> {
    this.isServing = false;
    this.#server?.child.kill('SIGKILL');
    await this.#server?.exited;
    await this.proxy.close();
    removeDirectory(this.directory);
  }

  get #clockPath(): string {
    return join(this.directory, 'clock');
  }
}

let prefixes = 0;

/** Machines with counters of their own, that are not started. The caller closes them. */
export async function newMachines(
  redis: Pick<RedisServer, 'port'>,
  count: number,
  options: MachineOptions = {},
): Promise<Machine[]> {
  const prefix = `machines${prefixes++}`;
  const proxies = await Promise.all(
    Array.from({ length: count }, () => startDelayProxy(redis.port, options.network ?? NETWORK)),
  );
  return proxies.map((proxy) => new Machine(proxy, prefix, options));
}

/** Machines that have joined. */
export async function startMachines(
  ...parameters: Parameters<typeof newMachines>
): Promise<Machine[]> {
  const machines = await newMachines(...parameters);
  try {
    await Promise.all(machines.map((machine) => machine.start()));
    return machines;
  } catch (error) {
    await closeMachines(machines);
    throw error;
  }
}

export async function closeMachines(machines: readonly Machine[] = []): Promise<void> {
  await Promise.all(machines.map((machine) => machine.close()));
}
