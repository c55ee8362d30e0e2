/**
 * What clients see when Kubernetes ends a pod, with real processes and the order of signals of a
 * kubelet. There is no kubelet and no network of a cluster: the test sends the signals, and stops
 * sending requests some time later, as nodes do when they learn that an endpoint has gone.
 */

import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { connect } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, expect, test } from 'vitest';
import { recordMeasurement } from '../../support/guarantees.ts';
import { isRedisMissing, startRedis } from '../../support/programs/redis.ts';
import {
  type ExitStatus,
  freePort,
  ROOT_KEY,
  removeDirectory,
  type ServerProcess,
  startServer,
  temporaryDirectory,
  waitUntil,
} from '../../support/server.ts';
import {
  allowedCheck,
  type ClientResult,
  runSequentialClient,
} from '../faults/http-connections.ts';

const APPLICATION = new URL('./draining-application.process.mjs', import.meta.url).pathname;
const SIZES = ['--acceptors', '1', '--workers', '1', '--counters', '1024'];
/** Nodes send connections to an endpoint for this long after its pod began to end. */
const REMOVAL_MS = 600;
/** The sleep of preStop: longer than the removal and the drain of the application. */
const PRE_STOP_MS = 3_000;
/** Requests go on this long after weir has ended, if it ends before the removal. */
const WITHOUT_WEIR_MS = 100;
const CLIENTS = 4;
const PAUSE_MS = 5;
const ENDED: ExitStatus = { code: 0, signal: null };

const directories: string[] = [];
const children: ChildProcess[] = [];
afterEach(async () => {
  for (const child of children.splice(0)) {
    if (child.exitCode !== null || child.signalCode !== null) continue;
    const exited = once(child, 'exit');
    child.kill('SIGKILL');
    await exited;
  }
  for (const directory of directories.splice(0)) removeDirectory(directory);
});

async function startWeir(args: string[] = [], redisUrl?: string): Promise<ServerProcess> {
  const directory = temporaryDirectory();
  directories.push(directory);
  const env = redisUrl === undefined ? {} : { WEIR_REDIS_URL: redisUrl };
  const server = await startServer(directory, { args: [...SIZES, ...args], env });
  children.push(server.child);
  return server;
}

interface ApplicationProcess {
  port: number;
  child: ChildProcess;
  exited: Promise<ExitStatus>;
}

async function startApplication(weir: ServerProcess): Promise<ApplicationProcess> {
  const port = await freePort();
  const args = [APPLICATION, `${port}`, `${weir.port}`, ROOT_KEY];
  const child = spawn(process.execPath, args, { stdio: 'inherit' });
  children.push(child);
  const exited = new Promise<ExitStatus>((resolve) => {
    child.on('exit', (code, signal) => resolve({ code, signal }));
  });
  await waitUntil('the application answers', async () => {
    const { responses } = await runSequentialClient({
      connect: () => connect(port, '127.0.0.1'),
      body: '',
      pauseMs: 0,
      shouldContinue: () => false,
    });
    return responses === 1;
  });
  return { port, child, exited };
}

/** Clients with a connection for each request, and clients that keep theirs. */
class Traffic {
  #ports: readonly number[];
  #isStopped = false;
  #next = 0;
  #responses = 0;
  #responsesBefore = 0;
  readonly #results: ClientResult[] = [];
  readonly #clients: Promise<void>[];

  /** @param ports of the endpoints, which clients use in turn */
  private constructor(ports: readonly number[]) {
    this.#ports = ports;
    this.#clients = Array.from({ length: CLIENTS }, (_, i) => this.#run(i % 2 === 0));
  }

  /** Waits until clients get responses. Answers until then do not count. */
  static async start(ports: readonly number[]): Promise<Traffic> {
    const traffic = new Traffic(ports);
    await waitUntil('clients get responses', () => traffic.#responses > 20 * CLIENTS);
    traffic.#responsesBefore = traffic.#responses;
    return traffic;
  }

  async #run(keepsConnection: boolean): Promise<void> {
    while (!this.#isStopped) {
      const result = await runSequentialClient({
        connect: () => connect(this.#ports[this.#next++ % this.#ports.length], '127.0.0.1'),
        body: JSON.stringify(allowedCheck('client')),
        pauseMs: PAUSE_MS,
        shouldContinue: () => {
          this.#responses++;
          return keepsConnection && !this.#isStopped;
        },
      });
      this.#results.push(result);
      await sleep(PAUSE_MS);
    }
  }

  /** From now on new connections go to these endpoints only. */
  useEndpoints(ports: readonly number[]): void {
    this.#ports = ports;
  }

  /** @returns what clients saw since the start */
  async stop(): Promise<Counts> {
    this.#isStopped = true;
    await Promise.all(this.#clients);
    const answered = this.#results.reduce((sum, { responses }) => sum + responses, 0);
    const failed = this.#results.reduce((sum, { failures }) => sum + failures.length, 0);
    return { answered: answered - this.#responsesBefore, failed };
  }
}

interface Counts {
  answered: number;
  failed: number;
}
const textOf = ({ answered, failed }: Counts) => `${answered} answered, ${failed} failed`;

/** Records and checks what clients saw with a delayed signal, and without it. */
function expectNoFailure(what: string, counts: Counts, without?: Counts): void {
  const more = without === undefined ? '' : `; without preStop ${textOf(without)}`;
  recordMeasurement('P3', `${what} ends`, '1 pod', textOf(counts) + more);
  if (without !== undefined) expect(without.failed).toBeGreaterThan(0);
  expect(counts.answered).toBeGreaterThan(0);
  expect(counts.failed).toBe(0);
}

/** How a kubelet ends the two containers of a pod. */
type Order = 'native sidecar' | 'both at once' | 'both at once, with preStop of weir';

/** @returns what clients saw from the first signal until the endpoint was removed */
async function endPod(order: Order): Promise<Counts> {
  const weir = await startWeir();
  const application = await startApplication(weir);
  const traffic = await Traffic.start([application.port]);
  application.child.kill('SIGTERM');
  let ended: Promise<unknown> = application.exited;
  if (order === 'native sidecar') ended = application.exited.then(() => weir.stop());
  if (order === 'both at once') ended = weir.stop();
  if (order === 'both at once, with preStop of weir') ended = sleep(PRE_STOP_MS).then(weir.stop);
  await sleep(REMOVAL_MS);
  if (order === 'both at once') await weir.exited.then(() => sleep(WITHOUT_WEIR_MS));
  const counts = await traffic.stop();
  await ended;
  expect(await Promise.all([application.exited, weir.exited])).toEqual([ENDED, ENDED]);
  return counts;
}

test('a native sidecar answers the application until the application has ended', async () => {
  expectNoFailure('a pod with a native sidecar', await endPod('native sidecar'));
});

test('an ordinary container answers the application if preStop delays its signal', async () => {
  const without = await endPod('both at once');
  const counts = await endPod('both at once, with preStop of weir');
  expectNoFailure('a pod with an ordinary container', counts, without);
});

test.skipIf(isRedisMissing)(
  'replicas lose no check when one of them ends, if preStop delays its signal',
  async () => {
    const redis = await startRedis();
    try {
      const args = ['--engine', 'redis'];
      const replicas = await Promise.all([1, 2, 3].map(() => startWeir(args, redis.url)));
      await waitUntil('all replicas are ready', async () => {
        const states = await Promise.all(
          replicas.map(({ adminUrl }) => fetch(`${adminUrl}/readyz`)),
        );
        return states.every(({ ok }) => ok);
      });
      const without = await endReplica(replicas, 0);
      const counts = await endReplica(replicas.slice(1), PRE_STOP_MS);
      expectNoFailure('one of several replicas', counts, without);
    } finally {
      await redis.close();
    }
  },
);

/** Ends the first replica. @returns what clients saw until it had ended */
async function endReplica(
  [first, ...others]: readonly ServerProcess[],
  preStopMs: number,
): Promise<Counts> {
  const remaining = others.map(({ port }) => port);
  const traffic = await Traffic.start([first.port, ...remaining]);
  const ended = sleep(preStopMs).then(first.stop);
  await sleep(REMOVAL_MS);
  if (preStopMs === 0) await first.exited.then(() => sleep(WITHOUT_WEIR_MS));
  traffic.useEndpoints(remaining);
  expect(await ended).toEqual(ENDED);
  return traffic.stop();
}
