/**
 * Runs the command `weir`, with WEIR_URL and WEIR_KEY set: `runWeir` the built one as its own
 * process, `callWeir` its function in this process, which takes some milliseconds. Calls in this
 * process run one after the other, because they replace the environment and the standard streams.
 */

import { execFile } from 'node:child_process';
import fs from 'node:fs';
import { syncBuiltinESMExports } from 'node:module';
import { expect, vi } from 'vitest';
import { run } from '../../src/commands/run.ts';
import { CLI_PATH, cleanEnvironment, ROOT_KEY } from './server.ts';
import { type TestServer, useServer } from './test-server.ts';

/** A pattern for a time as commands print it. */
export const ISO_TIME = '\\d{4}-\\d\\d-\\d\\dT\\d\\d:\\d\\d:\\d\\d(\\.\\d{3})?Z';

export interface CommandResult {
  code: number;
  stdout: string;
  stderr: string;
}

interface CommandOptions {
  /** A variable that is undefined is removed. */
  env?: Record<string, string | undefined>;
  cwd?: string;
  input?: string;
}

export function runWeir(
  url: string,
  args: readonly string[],
  { env, cwd, input }: CommandOptions = {},
): Promise<CommandResult> {
  return new Promise((resolve) => {
    const known = { PATH: process.env.PATH, WEIR_URL: url, WEIR_KEY: ROOT_KEY, ...env };
    const options = { env: known as NodeJS.ProcessEnv, ...(cwd === undefined ? {} : { cwd }) };
    const child = execFile(
      process.execPath,
      [CLI_PATH, ...args],
      options,
      (error, stdout, stderr) => {
        resolve({ code: (error?.code as number | undefined) ?? 0, stdout, stderr });
      },
    );
    child.stdin?.end(input);
  });
}

let lastCall: Promise<unknown> = Promise.resolve();

/**
 * The same without a process, for every command but `serve` and a live `top`. What `run` starts
 * writes to the streams of this process.
 */
export function callWeir(
  url: string,
  args: readonly string[],
  { env, cwd, input = '' }: CommandOptions = {},
): Promise<CommandResult> {
  const call = lastCall.then(async () => {
    const { env: ownEnv } = process;
    const ownDirectory = process.cwd();
    const defined = Object.entries({ WEIR_URL: url, WEIR_KEY: ROOT_KEY, ...env }).filter(
      ([, value]) => value !== undefined,
    );
    const output = { stdout: '', stderr: '' };
    const { readFileSync, writeSync } = fs;
    const stdout = vi.spyOn(process.stdout, 'write').mockImplementation((text) => {
      output.stdout += text;
      return true;
    });
    process.env = { ...cleanEnvironment(), ...Object.fromEntries(defined) };
    fs.writeSync = ((fd: number, text: string) => {
      if (fd !== 2) return writeSync(fd, text);
      output.stderr += text;
      return text.length;
    }) as typeof writeSync;
    fs.readFileSync = ((path: string | number, encoding?: 'utf8') => {
      return path === 0 ? Buffer.from(input) : readFileSync(path, encoding);
    }) as typeof readFileSync;
    syncBuiltinESMExports();
    if (cwd !== undefined) process.chdir(cwd);
    try {
      return { code: await run(args), ...output };
    } finally {
      process.chdir(ownDirectory);
      Object.assign(fs, { readFileSync, writeSync });
      syncBuiltinESMExports();
      process.env = ownEnv;
      stdout.mockRestore();
    }
  });
  lastCall = call.catch(() => {});
  return call;
}

/** The JSON lines that a command printed. Fails unless the exit code is 0. */
export async function jsonLines(
  url: string,
  args: readonly string[],
  options?: CommandOptions,
): Promise<Record<string, unknown>[]> {
  const { code, stdout, stderr } = await callWeir(url, [...args, '--json'], options);
  expect([args, code, stderr]).toEqual([args, 0, '']);
  expect(stdout === '' || stdout.endsWith('\n')).toBe(true);
  return stdout
    .split('\n')
    .slice(0, -1)
    .map((line) => JSON.parse(line));
}

type RunCommand<T> = (args: string[], env?: CommandOptions['env'], input?: string) => Promise<T>;

interface CommandServer {
  server: TestServer;
  /** Of the server. */
  dataDir: string;
  /** The directory in which the commands run. */
  files: string;
  weir: RunCommand<CommandResult>;
  /** The JSON lines that a command prints. Fails unless its exit code is 0. */
  lines: RunCommand<Record<string, unknown>[]>;
}

/** Runs a server for the commands of a test file. */
export function commandServer(): CommandServer {
  const server = useServer();
  const { dataDir, directory: files } = server;
  const optionsOf = (env: CommandOptions['env'] = {}, input?: string): CommandOptions => {
    return { env, cwd: files, ...(input === undefined ? {} : { input }) };
  };
  return {
    server,
    dataDir,
    files,
    weir: (args, env, input) => callWeir(server.url, args, optionsOf(env, input)),
    lines: (args, env, input) => jsonLines(server.url, args, optionsOf(env, input)),
  };
}
