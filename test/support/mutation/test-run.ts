/**
 * Runs vitest in a work copy, and ends every process of the run, also those that tests detach. If a
 * test file exceeds its time limit, it has failed.
 */

import { spawn, spawnSync } from 'node:child_process';
import { closeSync, openSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

export interface TestFile {
  /** The project of vitest. A file can be in several projects. */
  readonly project: string;
  readonly path: string;
}

export interface FileResult extends TestFile {
  readonly state: string;
  readonly seconds: number;
  /** The first failed test, or the error of the file. */
  readonly failure: string;
}

/** What `run.config.ts` reads. */
export interface TestPlan {
  readonly files: readonly TestFile[];
  readonly resultsFile: string;
  /** One file at a time, in this order, up to the first failure. */
  readonly isSerial: boolean;
}

export interface TestRun {
  readonly results: readonly FileResult[];
  /** The first file that failed, and how. */
  readonly failed: (TestFile & { readonly how: string }) | undefined;
}

const VITEST = 'node_modules/vitest/vitest.mjs';
const CONFIG = 'test/support/mutation/run.config.ts';

export const isSameFile = (a: TestFile, b: TestFile) => {
  return a.project === b.project && a.path === b.path;
};

/** The test files of the named projects, or of all projects if none is named. */
export function listTestFiles(
  copy: string,
  config: string,
  projects: readonly string[],
  filters: readonly string[],
): TestFile[] {
  const named = projects.flatMap((name) => ['--project', name]);
  const args = [VITEST, 'list', ...filters, '--filesOnly', '--json', '--config', config, ...named];
  const { stdout, stderr } = spawnSync(process.execPath, args, { cwd: copy, encoding: 'utf8' });
  const start = stdout.search(/^\[/m);
  if (start < 0) throw new Error(`vitest lists no test files: ${stdout}${stderr}`);
  const files: { file: string; projectName?: string }[] = JSON.parse(stdout.slice(start));
  return files.map(({ file, projectName = '' }) => {
    return { project: projectName, path: file.slice(copy.length + 1) };
  });
}

export class TestRunner {
  readonly #copy: string;
  readonly #out: string;
  #runs = 0;
  #endRun = () => {};

  /** The plans, the results and the output of vitest go to the folder `out`. */
  constructor(copy: string, out: string) {
    this.#copy = copy;
    this.#out = out;
    // Before the work copy is removed.
    process.prependOnceListener('exit', () => this.#endRun());
  }

  /** `limitOf` gives the time in s to wait for a file after the result before. */
  async run(
    files: readonly TestFile[],
    isSerial: boolean,
    env: Record<string, string>,
    limitOf: (file: TestFile | undefined) => number,
  ): Promise<TestRun> {
    // The name of the plan is in the environment of all processes of this run, and of no other.
    const planFile = join(this.#out, `plan-${process.pid}-${++this.#runs}.json`);
    const plan: TestPlan = { files, isSerial, resultsFile: join(this.#out, 'run.jsonl') };
    writeFileSync(planFile, JSON.stringify(plan));
    writeFileSync(plan.resultsFile, '');
    const log = openSync(join(this.#out, 'vitest.log'), 'a');
    const child = spawn(process.execPath, [VITEST, 'run', '--config', CONFIG], {
      cwd: this.#copy,
      env: { ...process.env, ...env, MUTATION_RUN: planFile },
      stdio: ['ignore', log, log],
      detached: true,
    });
    this.#endRun = () => endProcesses(child.pid, planFile);
    let how = 'the test process ended with an error';
    let done = { count: 0, at: performance.now() };
    const timer = setInterval(() => {
      const count = readResults(plan.resultsFile).length;
      if (count > done.count) done = { count, at: performance.now() };
      const limitSeconds = limitOf(files[count]);
      if (performance.now() < done.at + limitSeconds * 1_000) return;
      how = `no result within ${Math.round(limitSeconds)} s`;
      this.#endRun();
    }, 1_000);
    const code = await new Promise<number | null>((resolve) => child.once('close', resolve));
    clearInterval(timer);
    this.#endRun();
    this.#endRun = () => {};
    closeSync(log);
    rmSync(planFile);

    const results = readResults(plan.resultsFile);
    const failed = results.find(({ state }) => state === 'failed');
    if (failed !== undefined) return { results, failed: { ...failed, how: failed.failure } };
    if (code === 0) return { results, failed: undefined };
    const isDone = (file: TestFile) => results.some((result) => isSameFile(result, file));
    const unfinished = files.find((file) => !isDone(file)) ?? files[files.length - 1];
    return { results, failed: { ...unfinished, how } };
  }
}

function readResults(path: string): FileResult[] {
  const lines = readFileSync(path, 'utf8').split('\n').slice(0, -1);
  return lines.map((line) => JSON.parse(line));
}

/** Ends the process group of a run, and processes in other groups that inherited its plan. */
function endProcesses(group: number | undefined, planFile: string): void {
  const end = (pid: number) => {
    try {
      process.kill(pid, 'SIGKILL');
    } catch {
      // It has already ended.
    }
  };
  if (group !== undefined) end(-group);
  for (const name of readdirSync('/proc')) {
    if (!/^\d+$/.test(name)) continue;
    let environment = '';
    try {
      environment = readFileSync(`/proc/${name}/environ`, 'latin1');
    } catch {
      // It has already ended.
    }
    if (environment.includes(`MUTATION_RUN=${planFile}\0`)) end(Number(name));
  }
}
