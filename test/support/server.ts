/** Starts the built server as its own process, on free ports and with its own data directory. */

import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';

export const CLI_PATH = new URL('../../dist/cli.js', import.meta.url).pathname;
export const ROOT_KEY = 'root-key-of-the-tests';

/** The two modes of deciding checks. Every guarantee about checks holds in both. */
export const DECIDE_MODES = ['in-place', 'worker'] as const;

/** Makes the server load `uws-pack` although this platform has its own package. */
const PRELOAD = new URL('./uws-pack.preload.cjs', import.meta.url).pathname;
const PRELOAD_ARGS = process.env.WEIR_TEST_UWS === 'uws-pack' ? ['--require', PRELOAD] : [];

/** Makes the main thread of the server take the system clock from messages. */
const STEPPED_CLOCK = new URL('./stepped-clock.preload.mjs', import.meta.url).pathname;

const children = new Set<ChildProcess>();
process.once('exit', () => {
  for (const child of children) child.kill('SIGKILL');
});

export interface ExitStatus {
  code: number | null;
  signal: NodeJS.Signals | null;
}

export interface ServerProcess {
  url: string;
  port: number;
  adminUrl: string;
  child: ChildProcess;
  stdout: () => string;
  stderr: () => string;
  exited: Promise<ExitStatus>;
  /** Sends SIGTERM. */
  stop: () => Promise<ExitStatus>;
}

export interface ServerOptions {
  /** The server and the Node to start instead of this build and this Node. */
  main?: string;
  node?: string;
  /** Words before the server's command line. They must replace themselves by the server. */
  commandPrefix?: string[];
  args?: string[];
  /** Variables besides those of every process. A variable that is undefined is removed. */
  env?: Record<string, string | undefined>;
  /** Whether the test moves the time of the server: see `startSteppedServer`. */
  hasSteppedClock?: boolean;
  /** Flags of Node, for example to preload a fault into every thread. */
  execArgv?: string[];
  /** The limit of open files, if not the limit of the tests. */
  descriptors?: number;
}

/** A server whose time a test moves, instead of waiting. */
export interface SteppedServer extends ServerProcess {
  /** Moves the server's time forward. Resolves when all its threads see it. */
  stepClock: (ms: number) => Promise<void>;
  /** The server's time in ms, at most a few ms old. */
  nowMs: () => number;
}

export function temporaryDirectory(): string {
  return mkdtempSync(join(tmpdir(), 'weir-test-'));
}

export function removeDirectory(path: string): void {
  rmSync(path, { recursive: true, force: true });
}

/**
 * Below the ephemeral ports that the kernel gives to clients, so that no client takes a port
 * between its choice and its use. Each of four test files that run in parallel has a quarter of the
 * range.
 */
const PORT_RANGE_INDEX = Number(process.env.VITEST_POOL_ID ?? 0) % 4;
const PORTS = { first: 20_000 + 3_000 * PORT_RANGE_INDEX, count: 3_000 };
let nextPort = Math.floor(Math.random() * PORTS.count);

/** A port that no process listens on; another one on each call. */
export async function freePort(): Promise<number> {
  for (;;) {
    const port = PORTS.first + (nextPort++ % PORTS.count);
    const server = createServer();
    const isFree = await new Promise<boolean>((resolve) => {
      server.once('error', () => resolve(false));
      server.listen(port, '127.0.0.1', () => resolve(true));
    });
    if (!isFree) continue;
    await new Promise((resolve) => server.close(resolve));
    return port;
  }
}

/** The environment of this process without weir's variables. */
export function cleanEnvironment(): Record<string, string | undefined> {
  return Object.fromEntries(
    Object.entries(process.env).filter(
      ([name]) => !name.startsWith('WEIR_') && name !== 'NODE_ENV',
    ),
  );
}

export async function spawnServer(
  dataDir: string,
  options: ServerOptions = {},
): Promise<ServerProcess> {
  const port = await freePort();
  const adminPort = await freePort();
  const args = [
    ...PRELOAD_ARGS,
    ...(options.hasSteppedClock ? ['--import', STEPPED_CLOCK] : []),
    ...(options.execArgv ?? []),
    options.main ?? CLI_PATH,
    ...['--port', String(port), '--admin-port', String(adminPort), '--data-dir', dataDir],
    ...(options.args ?? []),
  ];
  const env = { ...cleanEnvironment(), ...options.env } as NodeJS.ProcessEnv;
  const { descriptors } = options;
  const command = [...(options.commandPrefix ?? []), options.node ?? process.execPath, ...args];
  if (descriptors !== undefined) command.unshift('prlimit', `--nofile=${descriptors}`);
  const messages = options.hasSteppedClock ? (['ipc'] as const) : [];
  const stdio = ['ignore', 'pipe', 'pipe', ...messages] as const;
  const child = spawn(command[0], command.slice(1), { env, stdio: [...stdio] });
  // A test may fail before it stops its server.
  children.add(child);
  child.once('exit', () => children.delete(child));
  let stdout = '';
  let stderr = '';
  child.stdout!.on('data', (data) => {
    stdout += data;
  });
  child.stderr!.on('data', (data) => {
    stderr += data;
  });
  const exited = new Promise<ExitStatus>((resolve) => {
    child.on('close', (code, signal) => resolve({ code, signal }));
  });
  return {
    url: `http://127.0.0.1:${port}`,
    port,
    adminUrl: `http://127.0.0.1:${adminPort}`,
    child,
    stdout: () => stdout,
    stderr: () => stderr,
    exited,
    stop: () => {
      child.kill('SIGTERM');
      return exited;
    },
  };
}

/** Waits for at least 20 s, which only a failure takes. */
export async function waitUntil(
  description: string,
  condition: () => boolean | Promise<boolean>,
): Promise<void> {
  for (let i = 0; i < 2_000; i++) {
    if (await condition()) return;
    await sleep(10);
  }
  throw new Error(`timed out waiting until ${description}`);
}

/** Starts a server and waits until it serves. It has a root key unless `env` removes it. */
export async function startServer(
  dataDir: string,
  options: ServerOptions = {},
): Promise<ServerProcess> {
  const env = { WEIR_ROOT_KEY: ROOT_KEY, ...options.env };
  const server = await spawnServer(dataDir, { ...options, env });
  await waitUntilServing(server);
  return server;
}

export function waitUntilServing({ child, stdout, stderr }: ServerProcess): Promise<void> {
  return waitUntil(`it serves: ${stderr()}`, () => {
    if (child.exitCode !== null) throw new Error(`it ended: ${stderr()}`);
    return stdout().includes('serves checks');
  });
}

/**
 * Starts a server whose time the test moves. Between two steps it runs on
 * at the rate of the system clock, so a test uses windows of an hour or more and steps over them.
 */
export async function startSteppedServer(
  dataDir: string,
  options: ServerOptions = {},
): Promise<SteppedServer> {
  const server = await startServer(dataDir, { ...options, hasSteppedClock: true });
  let offsetMs = 0;
  return {
    ...server,
    nowMs: () => Date.now() + offsetMs,
    stepClock: async (ms) => {
      offsetMs += ms;
      server.child.send({ offsetMs });
      await once(server.child, 'message');
    },
  };
}

/** Stops all threads of a process, and waits until they are stopped. */
export async function suspendProcess({ child }: ServerProcess): Promise<void> {
  child.kill('SIGSTOP');
  const tasks = `/proc/${child.pid}/task`;
  await waitUntil('all threads are stopped', () => {
    return readdirSync(tasks).every((task) => {
      return readFileSync(`${tasks}/${task}/stat`, 'utf8').includes(') T ');
    });
  });
}
