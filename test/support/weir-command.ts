/** Runs the command `weir` as its own process, with WEIR_URL and WEIR_KEY set. */

import { execFile } from 'node:child_process';
import { afterAll, beforeAll, expect } from 'vitest';
import {
  CLI_PATH,
  ROOT_KEY,
  removeDirectory,
  type ServerProcess,
  startServer,
  temporaryDirectory,
} from './server.ts';

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

/** The JSON lines that a command printed. Fails unless the exit code is 0. */
export async function jsonLines(
  url: string,
  args: readonly string[],
  options?: CommandOptions,
): Promise<Record<string, unknown>[]> {
  const { code, stdout, stderr } = await runWeir(url, [...args, '--json'], options);
  expect([args, code, stderr]).toEqual([args, 0, '']);
  expect(stdout === '' || stdout.endsWith('\n')).toBe(true);
  return stdout
    .split('\n')
    .slice(0, -1)
    .map((line) => JSON.parse(line));
}

type RunCommand<T> = (args: string[], env?: CommandOptions['env'], input?: string) => Promise<T>;

interface CommandServer {
  readonly server: ServerProcess;
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
  const dataDir = temporaryDirectory();
  const files = temporaryDirectory();
  let server: ServerProcess;
  beforeAll(async () => {
    server = await startServer(dataDir, { args: ['--acceptors', '2', '--counters', '1024'] });
  });
  afterAll(async () => {
    expect(await server.stop()).toEqual({ code: 0, signal: null });
    removeDirectory(dataDir);
    removeDirectory(files);
  });
  const optionsOf = (env: CommandOptions['env'] = {}, input?: string): CommandOptions => {
    return { env, cwd: files, ...(input === undefined ? {} : { input }) };
  };
  return {
    get server() {
      return server;
    },
    dataDir,
    files,
    weir: (args, env, input) => runWeir(server.url, args, optionsOf(env, input)),
    lines: (args, env, input) => jsonLines(server.url, args, optionsOf(env, input)),
  };
}
