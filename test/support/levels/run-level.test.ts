/** What the runner of a level makes of tests that fail once, twice, or too often. */

import { spawn } from 'node:child_process';
import { mkdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { removeDirectory, temporaryDirectory } from '../server.ts';

const ROOT = new URL('../../..', import.meta.url).pathname;
const RUNNER = new URL('./run-level.mjs', import.meta.url).pathname;
const RESULTS_REPORTER = new URL('./results-reporter.ts', import.meta.url).pathname;

const CONFIG = `
import ResultsReporter from '${RESULTS_REPORTER}';
export default { test: {
  reporters: [new ResultsReporter({ outputFile: process.env.TEST_JSON })],
  projects: [{ test: { name: 'level', include: ['test/*.test.ts'] } }],
} };
`;
/** Each test fails so often before it passes. */
const testFile = (name: string, failures: readonly number[], extra: string) => `
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { expect, test } from 'vitest';
test.each(${JSON.stringify(failures.map((count, i) => [i, count]))})('case %i', (i, failures) => {
  const file = 'runs-${name}-' + i;
  const runs = existsSync(file) ? Number(readFileSync(file, 'utf8')) : 0;
  writeFileSync(file, String(runs + 1));
  expect(runs).toBeGreaterThanOrEqual(failures);
});
${extra}
`;

interface RunnerResult {
  code: number | null;
  lines: string[];
  output: string;
  counts: { passed: number; failed: number; skipped: number };
}

async function runLevel(
  failures: readonly number[],
  { extra = '', names = ['one'], options = [] as string[] } = {},
): Promise<RunnerResult> {
  const directory = temporaryDirectory();
  mkdirSync(join(directory, 'test'));
  symlinkSync(join(ROOT, 'node_modules'), join(directory, 'node_modules'));
  writeFileSync(join(directory, 'package.json'), '{"type":"module"}');
  writeFileSync(join(directory, 'test/vitest.config.ts'), CONFIG);
  for (const name of names) {
    writeFileSync(join(directory, `test/${name}.test.ts`), testFile(name, failures, extra));
  }
  const results = join(directory, 'counts.json');
  const env = { ...process.env, TEST_RESULTS: results };
  const child = spawn(process.execPath, [RUNNER, 'level', ...options], { cwd: directory, env });
  let output = '';
  child.stdout.on('data', (data) => {
    output += data;
  });
  try {
    const code = await new Promise<number | null>((resolve) => child.on('close', resolve));
    const lines = output.split('\n').filter((line) => /^(failed|unstable|\d)/.test(line));
    return { code, lines, output, counts: JSON.parse(readFileSync(results, 'utf8')) };
  } finally {
    removeDirectory(directory);
  }
}

const named = (status: string, i: number) => `${status}: test/one.test.ts > case ${i}`;

test('a test that passes when it runs again, alone, is listed as unstable, and why', async () => {
  const result = await runLevel([0, 1]);
  expect(result).toMatchObject({
    code: 0,
    lines: [named('unstable', 1)],
    counts: { passed: 2, failed: 0, skipped: 0 },
  });
  expect(result.output).toContain(
    '\n  AssertionError: expected 0 to be greater than or equal to 1',
  );
});

test('a test that fails twice fails the run, and those that pass do not hide it', async () => {
  expect(await runLevel([1, 2])).toMatchObject({
    code: 1,
    lines: [named('failed', 1), named('unstable', 0)],
    counts: { passed: 1, failed: 1, skipped: 0 },
  });
});

test('an error outside of all tests fails the run, also beside an unstable test', async () => {
  const extra = 'if (!existsSync("runs-one-0")) Promise.reject(new Error("nobody awaits this"));';
  expect(await runLevel([1], { extra })).toMatchObject({
    code: 1,
    lines: [named('unstable', 0), 'failed: errors outside of all tests: 1'],
    counts: { passed: 1, failed: 0, skipped: 0 },
  });
});

test('unstable tests in more than three files fail the run', async () => {
  expect(await runLevel([1, 1], { names: ['one', 'two', 'three'] })).toMatchObject({
    code: 0,
    counts: { passed: 6, failed: 0, skipped: 0 },
  });
  const { code, lines, counts } = await runLevel([1], { names: ['one', 'two', 'three', 'four'] });
  expect(code).toBe(1);
  expect(lines).toHaveLength(5);
  expect(lines.at(-1)).toBe('4 files are unstable; at most 3 may be');
  expect(counts).toEqual({ passed: 4, failed: 0, skipped: 0 });
});

test('a failure of vitest itself fails the run, and says so', async () => {
  expect(await runLevel([], { names: [] })).toMatchObject({
    code: 1,
    lines: ['failed: vitest itself, without a failed test'],
  });
});

test('options of vitest hold for the second run of a file too', async () => {
  expect(await runLevel([1, 2], { options: ['-t', 'case 0'] })).toMatchObject({
    code: 0,
    lines: [named('unstable', 0)],
    counts: { passed: 1, failed: 0 },
  });
});
