/**
 * `npm run test:mutation`: changes expressions of the sources one at a time, and reports which of
 * these mutants no test catches. All mutants are built into one copy of the checkout and switched on
 * by an environment variable. One run without an active mutant finds the test files that execute
 * each mutant. A test file that never executes the changed expression cannot catch the mutant. So
 * all executing files are equal to the whole suites. A test that starts a process with an
 * environment of its own cannot catch mutants in that process.
 */

import { existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { parseArgs } from 'node:util';
import { folderOf, locateMutant, type Mutant, sampleMutants } from './mutants.ts';
import { formatComparison, formatMutant, formatReport, type MutantResult } from './report.ts';
import {
  type FileResult,
  isSameFile,
  listTestFiles,
  type TestFile,
  TestRunner,
} from './test-run.ts';
import { createWorkCopy, listFiles } from './work-copy.ts';

const FOLDERS = ['engine', 'overrides', 'policies', 'api', 'auth', 'registry'];
const SEED = 20_261_126;
const HELP = `Usage: npm run test:mutation -- [options] [source files and folders]

The default sources are ${FOLDERS.map((name) => `src/${name}`).join(', ')}.

  --count <n>          number of mutants; default 300
  --seed <n>           seed of the sample; default ${SEED}
  --mutants <file>     tests the mutants of this file, mutants.json of another run
  --checkout <folder>  the checkout to test; default: this one
  --config <file>      its configuration of vitest; default test/vitest.config.ts
  --project <name>     only this project of vitest; repeat it for several
  --tests <filter>     only test files whose path contains this text; repeat it for several
  --seconds <s>        time for the test files of each mutant, in s; default 60
  --whole              runs all test files that execute a mutant, whatever time they need
  --out <folder>       folder of the results; default node_modules/.cache/mutation
  --resume             continues the run whose results are in that folder
  --compare            compares two results.json: -- --compare <before> <after>
`;
/** The time to wait for each result of the first run. */
const COVERAGE_LIMIT_S = 1_800;
/** A file starts a process of its own. */
const FILE_START_S = 0.5;
/** A mutant hangs if a test file takes this many times its usual time, and this many seconds. */
const HANG = { factor: 3, seconds: 30 };

/** A test file that passes without an active mutant, and the mutants that it executes. */
interface Coverage extends FileResult {
  readonly mutants: readonly number[];
}

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    count: { type: 'string', default: '300' },
    seed: { type: 'string', default: String(SEED) },
    mutants: { type: 'string' },
    checkout: { type: 'string', default: '.' },
    config: { type: 'string', default: 'test/vitest.config.ts' },
    project: { type: 'string', multiple: true, default: [] },
    tests: { type: 'string', multiple: true, default: [] },
    seconds: { type: 'string', default: '60' },
    whole: { type: 'boolean', default: false },
    out: { type: 'string', default: 'node_modules/.cache/mutation' },
    resume: { type: 'boolean', default: false },
    compare: { type: 'boolean', default: false },
    help: { type: 'boolean', default: false },
  },
});
const print = (text: string) => process.stdout.write(text);
const readJson = <T>(path: string): T => JSON.parse(readFileSync(path, 'utf8'));
const checkout = resolve(values.checkout);
const out = resolve(values.out);
const FILES = { mutants: 'mutants.json', coverage: 'coverage.json', results: 'results.json' };
const save = (name: keyof typeof FILES, value: unknown) => {
  writeFileSync(join(out, FILES[name]), `${JSON.stringify(value, null, 1)}\n`);
};
const saved = <T>(name: keyof typeof FILES): T | undefined => {
  const path = join(out, FILES[name]);
  return values.resume && existsSync(path) ? readJson<T>(path) : undefined;
};

try {
  if (values.help) print(HELP);
  else if (values.compare) compare(positionals);
  else await testMutants();
} catch (error) {
  process.stderr.write(`${(error as Error).message}\n`);
  process.exitCode = 1;
}

function wholeNumber(name: 'count' | 'seed' | 'seconds'): number {
  const text = values[name];
  if (/^\d{1,9}$/.test(text)) return Number(text);
  throw new Error(`--${name} must be a whole number below 1000000000; got ${text}`);
}

function compare([before, after]: readonly string[]): void {
  print(formatComparison(readJson(before), readJson(after)));
}

async function testMutants(): Promise<void> {
  for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => process.exit(1));
  const recorded = chooseMutants();
  const located = locateMutants(recorded);
  const earlier = values.resume ? [] : [...Object.values(FILES), 'vitest.log'];
  for (const name of earlier) rmSync(join(out, name), { force: true });
  mkdirSync(out, { recursive: true });
  save('mutants', recorded);
  print(`${located.map((mutant, id) => `${id + 1}  ${formatMutant(mutant)}\n`).join('')}\n`);

  const copy = createWorkCopy(checkout, located, values.config);
  const runner = new TestRunner(copy, out);
  const coverage = saved<Coverage[]>('coverage') ?? (await measureCoverage(runner, copy));
  save('coverage', coverage);

  const results = saved<MutantResult[]>('results') ?? [];
  const passing = new Set<TestFile>();
  for (let id = results.length; id < recorded.length; id++) {
    const mutant = { ...recorded[id], line: located[id].line };
    const result = await testMutant(runner, coverage, passing, id, mutant);
    results.push(result);
    save('results', results);
    const how = result.caughtBy === undefined ? '' : ` by ${result.caughtBy}`;
    const text = `${result.outcome}${how} (${result.seconds.toFixed(1)} s)`;
    print(`${id + 1}/${recorded.length}  ${formatMutant(mutant)}\n    ${text}\n`);
  }
  print(`\n${formatReport(results)}\nResults: ${join(out, FILES.results)}\n`);
}

function chooseMutants(): readonly Mutant[] {
  if (values.mutants !== undefined) return readJson(values.mutants);
  const earlier = saved<Mutant[]>('mutants');
  if (earlier !== undefined) return earlier;
  const wanted = positionals.length > 0 ? positionals : FOLDERS.map((name) => `src/${name}`);
  const isWanted = (path: string) => wanted.some((it) => `${path}/`.startsWith(join(it, '/')));
  const paths = listFiles(checkout).filter((path) => path.endsWith('.ts') && isWanted(path));
  if (paths.length === 0) throw new Error(`no TypeScript files in ${wanted.join(', ')}`);
  const sources = paths.map((path) => ({ path, text: readFileSync(join(checkout, path), 'utf8') }));
  return sampleMutants(sources, wholeNumber('count'), wholeNumber('seed'));
}

function locateMutants(mutants: readonly Mutant[]): readonly Mutant[] {
  const located = mutants.map((mutant) => {
    const path = join(checkout, mutant.path);
    return existsSync(path) ? locateMutant(readFileSync(path, 'utf8'), mutant) : undefined;
  });
  const missing = mutants.filter((_, id) => located[id] === undefined).map(formatMutant);
  if (missing.length === 0) return located.filter((mutant) => mutant !== undefined);
  throw new Error(`the sources do not contain these recorded mutants:\n${missing.join('\n')}`);
}

/** Runs all test files without an active mutant. A file that fails twice is left out. */
async function measureCoverage(runner: TestRunner, copy: string): Promise<Coverage[]> {
  const files = listTestFiles(copy, values.config, values.project, values.tests);
  const hits = join(out, 'hits');
  rmSync(hits, { recursive: true, force: true });
  mkdirSync(hits);
  const env = { MUTATION_HITS_DIR: hits };
  const start = performance.now();
  const { results } = await runner.run(files, false, env, () => COVERAGE_LIMIT_S);
  const passed = results.filter(({ state }) => state === 'passed');
  const isKnown = (file: (typeof files)[number]) => {
    return results.some((result) => isSameFile(result, file) && result.state !== 'failed');
  };
  for (const file of files.filter((it) => !isKnown(it))) {
    const again = await runner.run([file], true, env, () => COVERAGE_LIMIT_S);
    passed.push(...again.results.filter(({ state }) => state === 'passed'));
    if (again.failed === undefined) continue;
    print(`left out, because it fails without a mutant: ${file.path} (${again.failed.how})\n`);
  }
  const seconds = Math.round((performance.now() - start) / 1_000);
  print(
    `${passed.length} of ${files.length} test files passed without a mutant in ${seconds} s\n\n`,
  );
  return passed.map((file) => ({ ...file, mutants: readHits(file) }));
}

function readHits({ project, path }: FileResult): number[] {
  const file = join(out, 'hits', encodeURIComponent(`${project}:${path}`));
  if (!existsSync(file)) return [];
  return [...new Set(readFileSync(file, 'utf8').split('\n').filter(Boolean).map(Number))];
}

/**
 * A test file catches a mutant if it fails twice with it, and passes alone without it. `passing` has
 * the files that are known to do that. The test file of the source comes first, then fast files,
 * above all those of the same folder.
 */
async function testMutant(
  runner: TestRunner,
  coverage: readonly Coverage[],
  passing: Set<TestFile>,
  id: number,
  mutant: Mutant,
): Promise<MutantResult> {
  const start = performance.now();
  const ownTest = mutant.path.replace(/^src/, 'test').replace(/ts$/, 'test.ts');
  const ownFolder = folderOf(ownTest);
  const limit = wholeNumber('seconds');
  const rank = ({ path, seconds }: Coverage) => {
    if (path === ownTest && seconds <= limit / 2) return 0;
    return folderOf(path) === ownFolder ? seconds : 3 * seconds;
  };
  const executing = coverage.filter(({ mutants }) => mutants.includes(id));
  executing.sort((a, b) => rank(a) - rank(b));
  let sum = 0;
  const chosen = executing.filter((file, i) => {
    sum += file.seconds + FILE_START_S;
    return i === 0 || values.whole || sum <= limit;
  });
  const hangLimit = (file: TestFile | undefined) => {
    const usual = chosen.find((it) => file !== undefined && isSameFile(it, file))?.seconds ?? 0;
    return HANG.factor * usual + HANG.seconds;
  };
  const run = async (files: readonly TestFile[], env: Record<string, string>) => {
    return (await runner.run(files, true, env, hangLimit)).failed;
  };
  const active = { MUTATION_ACTIVE: String(id) };
  const unstable: string[] = [];
  const finish = (outcome: MutantResult['outcome'], caughtBy?: string): MutantResult => ({
    mutant,
    outcome,
    ...(caughtBy === undefined ? {} : { caughtBy }),
    unstable,
    filesRun: chosen.length,
    filesExecuting: executing.length,
    seconds: (performance.now() - start) / 1_000,
  });

  if (executing.length === 0) return finish('not executed');
  for (let left = chosen; left.length > 0; ) {
    const failed = await run(left, active);
    if (failed === undefined) break;
    const place = left.findIndex((file) => isSameFile(file, failed));
    const failure = `${failed.path}: ${failed.how.split('\n')[0]}`;
    const file = left[place];
    if (await run([file], active)) {
      if (!passing.has(file) && !(await run([file], {}))) passing.add(file);
      if (passing.has(file)) return finish('caught', failure);
    }
    unstable.push(failure);
    left = left.slice(place + 1);
  }
  return finish('survived');
}
