/**
 * `run-level.mjs PROJECT [PATH...] [OPTION...]`: runs a project of vitest, with paths and options of
 * vitest, and then each file with a failed test once more, alone. A test that fails twice fails the
 * run. A test that passes on its own is listed as unstable, with why it failed before; unstable tests
 * in more than three files fail the run too.
 *
 * With TEST_RESULTS it writes the counts of the run to that file as JSON: passed, failed, skipped.
 */

import { spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, relative } from 'node:path';

/** Of files, as one cause can fail all tests of a file. */
const UNSTABLE_MAX = 3;
/** So many failures are no accident, and running them again would only delay the message. */
const RETRIED_MAX = 2 * UNSTABLE_MAX;
/** The start of a failure message says what was expected and where. */
const MESSAGE_CHARACTERS_MAX = 2_000;

/**
 * @typedef {{ fullName: string, status: string, failureMessages: string[] }} TestResult
 * @typedef {{ name: string, status: string, message: string, assertionResults: TestResult[] }} FileResult
 */

const [project, ...args] = process.argv.slice(2);
const firstOption = args.findIndex((arg) => arg.startsWith('-'));
const options = firstOption < 0 ? [] : args.slice(firstOption);
const directory = mkdtempSync(join(tmpdir(), 'weir-tests-'));

/**
 * Runs vitest. @param {string[]} more arguments
 * @returns {{ hasPassed: boolean, files: FileResult[], unhandledErrors: number }}
 */
function run(more) {
  const json = join(directory, 'results.json');
  rmSync(json, { force: true });
  const { status } = spawnSync(
    process.execPath,
    [
      ...['node_modules/vitest/vitest.mjs', 'run', '--config', 'test/vitest.config.ts'],
      ...['--project', project, ...more],
    ],
    { stdio: 'inherit', env: { ...process.env, TEST_JSON: json } },
  );
  try {
    const { testResults, unhandledErrors } = JSON.parse(readFileSync(json, 'utf8'));
    return { hasPassed: status === 0, files: testResults, unhandledErrors };
  } catch {
    return { hasPassed: false, files: [], unhandledErrors: 0 };
  }
}

/**
 * The failed tests of a file: name and message. A file can fail outside of its tests.
 * @param {FileResult} file
 * @returns {[string, string][]}
 */
function failuresOf(file) {
  const path = relative('.', file.name);
  const tests = file.assertionResults.filter(({ status }) => status === 'failed');
  if (tests.length === 0 && file.status === 'failed') return [[path, file.message]];
  return tests.map(({ fullName, failureMessages }) => {
    return [`${path} > ${fullName}`, failureMessages.join('\n')];
  });
}

/** @param {FileResult[]} files @param {string} status */
function count(files, status) {
  const tests = files.flatMap(({ assertionResults }) => assertionResults);
  return tests.filter((test) => test.status === status).length;
}

const { hasPassed, files, unhandledErrors } = run(args);
const failed = new Map(files.flatMap(failuresOf));
const failedFiles = files.filter((file) => failuresOf(file).length > 0);
let failedTwice = failed;
if (failedFiles.length > 0 && failedFiles.length <= RETRIED_MAX) {
  failedTwice = new Map();
  for (const file of failedFiles) {
    const path = relative('.', file.name);
    console.log(`\nOnce more, alone: ${path}`);
    const again = run([path, '--no-file-parallelism', ...options]);
    const failures = new Map(again.files.flatMap(failuresOf));
    if (!again.hasPassed && failures.size === 0) failures.set(path, 'vitest failed');
    for (const [name, message] of failures) failedTwice.set(name, message);
  }
}
rmSync(directory, { recursive: true });

const unstable = [...failed].filter(([name]) => !failedTwice.has(name));
const unstableFiles = new Set(unstable.map(([name]) => name.split(' > ')[0]));
/** @param {'failed' | 'unstable'} status @param {Iterable<[string, string]>} failures */
function list(status, failures) {
  for (const [name, message] of failures) {
    console.log(`${status}: ${name}`);
    console.log(message.slice(0, MESSAGE_CHARACTERS_MAX).replace(/^/gm, '  '));
  }
}
list('failed', failedTwice);
list('unstable', unstable);
if (unstableFiles.size > UNSTABLE_MAX) {
  console.log(`${unstableFiles.size} files are unstable; at most ${UNSTABLE_MAX} may be`);
}
if (unhandledErrors > 0) console.log(`failed: errors outside of all tests: ${unhandledErrors}`);
const hasNoCause = !hasPassed && failed.size === 0 && unhandledErrors === 0;
if (hasNoCause) console.log('failed: vitest itself, without a failed test');
const hasFailed =
  failedTwice.size > 0 || unstableFiles.size > UNSTABLE_MAX || unhandledErrors > 0 || hasNoCause;
if (process.env.TEST_RESULTS !== undefined) {
  const counts = {
    passed: count(files, 'passed') + unstable.length,
    failed: failedTwice.size,
    skipped: count(files, 'pending') + count(files, 'skipped') + count(files, 'todo'),
  };
  writeFileSync(process.env.TEST_RESULTS, JSON.stringify(counts));
}
process.exit(hasFailed ? 1 : 0);
