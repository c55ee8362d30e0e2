/** The servers under load, weir and the bare ones, each in its own process. */

import { type ChildProcess, spawn } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { CHECK_WORKLOAD, type Workload } from './load-generator.ts';
import { ROOT_KEY } from './override-sets.ts';
import { pinned } from './pinning.ts';

export interface BenchServer {
  name: string;
  port: number;
  /** The requests that it gets. */
  workload: Workload;
  process: ChildProcess;
  /** All processes that serve. */
  pids: readonly number[];
  stop: () => Promise<void>;
}

const START_MS = 30_000;

/** Additional options of a server. */
interface StartOptions {
  args?: readonly string[];
  nodeFlags?: readonly string[];
  env?: Readonly<Record<string, string>>;
  workload?: Workload;
  /** The CPU that it is pinned to. Default: none. */
  cpu?: number;
}

export async function startServer(
  name: string,
  file: string,
  args: readonly string[],
  port: RegExp,
  { args: moreArgs = [], nodeFlags = [], env = {}, workload = CHECK_WORKLOAD, cpu }: StartOptions,
): Promise<BenchServer> {
  const directory = mkdtempSync(join(tmpdir(), 'weir-bench-'));
  const path = new URL(file, import.meta.url).pathname;
  const all = [...nodeFlags, path, ...args, ...moreArgs];
  const child = spawn(...pinned(cpu, process.execPath, all), {
    cwd: directory,
    env: { PATH: process.env.PATH ?? '', WEIR_ROOT_KEY: ROOT_KEY, NODE_ENV: 'production', ...env },
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const ended = new Promise((resolve) => child.once('exit', resolve));
  let stdout = '';
  const stop = async () => {
    child.kill('SIGTERM');
    await ended;
    rmSync(directory, { recursive: true, force: true });
  };
  const listeningPort = await new Promise<number>((resolve, reject) => {
    const fail = () => reject(new Error(`${name} did not start`));
    child.once('exit', fail);
    setTimeout(fail, START_MS).unref();
    const listen = (data: Buffer) => {
      stdout += data;
      const match = port.exec(stdout);
      if (match === null) return;
      child.stdout.off('data', listen).resume();
      resolve(Number(match[1]));
    };
    child.stdout.on('data', listen);
  }).catch(async (error) => {
    await stop();
    throw error;
  });
  return {
    name,
    port: listeningPort,
    workload,
    process: child,
    pids: [child.pid ?? 0],
    stop,
  };
}

export function startWeir(
  name: string,
  decide = 'in-place',
  extra: StartOptions = {},
): Promise<BenchServer> {
  // One acceptor, because the bare servers have one thread.
  const args = ['--port', '0', '--admin-port', '0', '--acceptors', '1', '--decide', decide];
  args.push('--log-level', 'silent');
  return startServer(name, '../cli.js', args, /serves checks on \S+:(\d+)/, extra);
}

/** @param mode `parse` or `read`; an additional argument is the path of a Unix socket */
export function startBareServer(
  name: string,
  mode: string,
  extra: StartOptions = {},
): Promise<BenchServer> {
  return startServer(name, './bare-server.process.js', [mode], /port (\d+)/, extra);
}

/** CPU seconds of a process, all threads, user and system; undefined if there is no /proc. */
export function cpuSeconds(pid: number): number | undefined {
  try {
    const fields = readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ')[1].split(' ');
    // In ticks of 10 ms on every Linux platform of Node.
    return (Number(fields[11]) + Number(fields[12])) / 100;
  } catch {
    return undefined;
  }
}

/** Resident memory in bytes; undefined if there is no /proc. */
export function residentBytes(pid: number): number | undefined {
  try {
    const match = /VmRSS:\s+(\d+) kB/.exec(readFileSync(`/proc/${pid}/status`, 'utf8'));
    return match === null ? undefined : Number(match[1]) * 1_024;
  } catch {
    return undefined;
  }
}

/** A port that is free at the moment. */
export function freePort(): Promise<number> {
  const server = createServer();
  return new Promise((resolve, reject) => {
    server.on('error', reject);
    server.listen(0, '127.0.0.1', () => {
      const address = server.address();
      const port = address !== null && typeof address === 'object' ? address.port : 0;
      server.close(() => resolve(port));
    });
  });
}

/**
 * The settings of weir in the environment of the benchmark, which replace the defaults of machines.
 * With them the defaults are compared with other settings.
 */
export function settingsOfEnvironment(): Record<string, string | undefined> {
  return Object.fromEntries(Object.entries(process.env).filter(([name]) => /^WEIR_/.test(name)));
}
