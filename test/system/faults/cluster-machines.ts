/**
 * Machines of a cluster that a test kills, stops, cuts off and starts again: servers with one
 * Redis, each behind a proxy of its own and with a data directory of its own.
 */

import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { trialCount } from '../../support/guarantees.ts';
import { readMetrics } from '../../support/http.ts';
import type { RedisServer } from '../../support/programs/redis.ts';
import {
  type ExitStatus,
  removeDirectory,
  type ServerOptions,
  type ServerProcess,
  startServer,
  suspendProcess,
  temporaryDirectory,
  waitUntil,
} from '../../support/server.ts';
import { type DelayProxy, startDelayProxy } from '../redis/delay-proxy.ts';

const WORKERS = String(trialCount(1, 2));
const SIZES = ['--acceptors', '1', '--workers', WORKERS, '--counters', '16384'];
/** The delay of each machine's connections to Redis, one way. */
const NETWORK = { delayMs: 0.2, jitterMs: 0.2 };
const FAKETIME_LIBRARY = '/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1';

export interface MachineOptions extends Pick<ServerOptions, 'args' | 'env' | 'execArgv'> {
  /** Whether the test can step the clock of the system that the server sees. */
  hasFakeClock?: boolean;
}

/** Counts of decisions that Redis did not prove. */
export interface UnprovenCounts {
  unproven: number;
  withoutRedis: number;
}

export class Machine {
  readonly proxy: DelayProxy;
  /** Of files about the server; the server has its data in a folder. */
  readonly directory = temporaryDirectory();
  /** Whether clients send checks to it, as a load balancer would. */
  isServing = false;
  /** Those of the runs that have ended count up to the last time that they were read. */
  counts: UnprovenCounts = { unproven: 0, withoutRedis: 0 };
  /** Of the next start. */
  options: MachineOptions;
  readonly #prefix: string;
  #server: ServerProcess | undefined;
  #countsBefore: UnprovenCounts = { unproven: 0, withoutRedis: 0 };

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
    const { args = [], env, execArgv, hasFakeClock = false } = this.options;
    this.#countsBefore = this.counts;
    this.#server = await startServer(join(this.directory, 'data'), {
      args: [...SIZES, ...args],
      ...(execArgv && { execArgv }),
      env: {
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
    this.isServing = isServingEarly;
    await this.waitUntilReady();
    this.isServing = true;
  }

  /** It has joined, and Redis answers it. */
  async waitUntilReady(): Promise<void> {
    await waitUntil(`it is ready: ${this.server.stderr()}`, async () => {
      const response = await fetch(`${this.server.adminUrl}/readyz`);
      return ((await response.json()) as { status: string }).status === 'ready';
    });
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
      if (name.startsWith('weir_unproven_denials_total')) counts.unproven += value;
      if (name.startsWith('weir_engine_down_decisions_total')) counts.withoutRedis += value;
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
  redis: RedisServer,
  count: number,
  options: MachineOptions = {},
): Promise<Machine[]> {
  const prefix = `machines${prefixes++}`;
  const proxies = await Promise.all(
    Array.from({ length: count }, () => startDelayProxy(redis.port, NETWORK)),
  );
  return proxies.map((proxy) => new Machine(proxy, prefix, options));
}
