/** Runs the command `weir` as its own process, with WEIR_URL and WEIR_KEY set. */

import { execFile } from 'node:child_process';
import { expect } from 'vitest';
import { CLI_PATH, ROOT_KEY } from './server.ts';

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
