/** Starts the built server as its own process, on free ports and a directory of its own. */

import { type ChildProcess, spawn } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

export const CLI_PATH = new URL('../../dist/cli.js', import.meta.url).pathname;
export const ROOT_KEY = 'root-key-of-the-tests';

/** The two ways to decide a check: whatever is promised of checks holds in both. */
export const DECIDE_MODES = ['in-place', 'worker'] as const;

/** Loads `uws-pack` where the tests run on it, though this platform has a package of its own. */
const PRELOAD = new URL('./uws-pack.preload.cjs', import.meta.url).pathname;
const PRELOAD_ARGS = process.env.WEIR_TEST_UWS === 'uws-pack' ? ['--require', PRELOAD] : [];

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
  /** SIGTERM, and what became of it. */
  stop: () => Promise<ExitStatus>;
}

export interface ServerOptions {
  /** What to start instead of the build at hand, and what by instead of this Node. */
  main?: string;
  node?: string;
  /** A command that starts the server in its own place: its words, before those of the server. */
  commandPrefix?: string[];
  args?: string[];
  /** Besides what every process has; a variable that is undefined is left out. */
  env?: Record<string, string | undefined>;
  /** Node's own flags, for faults that a preloaded file brings into the threads. */
  execArgv?: string[];
  /** How many files it may open, where not as many as the tests themselves. */
  descriptors?: number;
}

export function temporaryDirectory(): string {
  return mkdtempSync(join(tmpdir(), 'weir-test-'));
}

export function removeDirectory(path: string): void {
  rmSync(path, { recursive: true, force: true });
}

/**
 * Below those that the kernel gives to clients, so that none of them takes a port meanwhile; of
 * three files that run at once each has a third.
 */
const PORT_RANGE_INDEX = Number(process.env.VITEST_POOL_ID ?? 0) % 3;
const PORTS = { first: 20_000 + 4_000 * PORT_RANGE_INDEX, count: 4_000 };
let nextPort = Math.floor(Math.random() * PORTS.count);

/** A port that nobody listens on, and another each time. */
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

/** The environment of a newcomer: nothing of weir's in it. */
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
    ...(options.execArgv ?? []),
    options.main ?? CLI_PATH,
    ...['--port', String(port), '--admin-port', String(adminPort), '--data-dir', dataDir],
    ...(options.args ?? []),
  ];
  const env = { ...cleanEnvironment(), ...options.env } as NodeJS.ProcessEnv;
  const { descriptors } = options;
  const command = [...(options.commandPrefix ?? []), options.node ?? process.execPath, ...args];
  if (descriptors !== undefined) command.unshift('prlimit', `--nofile=${descriptors}`);
  const child = spawn(command[0], command.slice(1), { env, stdio: ['ignore', 'pipe', 'pipe'] });
  // A test that fails before it stops its server leaves none behind.
  children.add(child);
  child.once('exit', () => children.delete(child));
  let stdout = '';
  let stderr = '';
  child.stdout.on('data', (data) => {
    stdout += data;
  });
  child.stderr.on('data', (data) => {
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

export async function waitUntil(
  description: string,
  condition: () => boolean | Promise<boolean>,
): Promise<void> {
  for (let i = 0; i < 1_000; i++) {
    if (await condition()) return;
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
  throw new Error(`waited in vain until ${description}`);
}

/** Starts a server and waits until it serves; a root key is set unless the test says otherwise. */
export async function startServer(
  dataDir: string,
  options: ServerOptions = {},
): Promise<ServerProcess> {
  const env = { WEIR_ROOT_KEY: ROOT_KEY, ...options.env };
  const server = await spawnServer(dataDir, { ...options, env });
  await waitUntil(`it serves: ${server.stderr()}`, () => {
    if (server.child.exitCode !== null) throw new Error(`it ended: ${server.stderr()}`);
    return server.stdout().includes('serves checks');
  });
  return server;
}
