/** The workflows run only pinned code, with the permissions they need, and name what exists. */

import { execFileSync } from 'node:child_process';
import { copyFileSync, existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { parse } from 'yaml';
import { removeDirectory, temporaryDirectory } from '../../support/server.ts';

const ROOT = new URL('../../..', import.meta.url).pathname;
const read = (path: string): string => readFileSync(`${ROOT}/${path}`, 'utf8');
const { scripts } = JSON.parse(read('package.json'));

interface Step {
  uses?: string;
  run?: string;
  with?: Record<string, unknown>;
}

interface Job {
  permissions: Record<string, string>;
  'timeout-minutes': number;
  container?: unknown;
  steps: Step[];
}

interface Workflow {
  permissions: Record<string, string>;
  jobs: Record<string, Job>;
}

const workflows = ['ci.yml', 'release.yml'].map((name) => {
  const text = read(`.github/workflows/${name}`);
  const workflow = parse(text) as Workflow;
  return { name, text, workflow, jobs: Object.values(workflow.jobs) };
});

test.each(workflows)('$name pins each action by its commit, and names its version', ({ text }) => {
  const uses = [...text.matchAll(/uses: (.*)$/gm)].map(([, value]) => value);
  expect(uses.length).toBeGreaterThan(0);
  const pinned = /^[\w-]+\/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$/;
  expect(uses.filter((value) => !pinned.test(value))).toEqual([]);
});

test.each(workflows)('$name gives no job more than it declares, nor endless time', (each) => {
  expect(each.workflow.permissions).toEqual({});
  for (const job of each.jobs) {
    expect(Object.keys(job.permissions)).toContain('contents');
    expect(job['timeout-minutes']).toBeLessThanOrEqual(90);
  }
});

test('only the release may write, and no test runs with such a permission', () => {
  const writing = workflows.flatMap(({ name, workflow }) => {
    return Object.entries(workflow.jobs)
      .filter(([, { permissions }]) => Object.values(permissions).includes('write'))
      .map(([job]) => `${name} ${job}`);
  });
  const jobs = ['npm', 'image', 'chart', 'release'];
  expect(writing).toEqual(jobs.map((job) => `release.yml ${job}`));
});

test.each(workflows)('$name puts no expression into a script, where it could be code', (each) => {
  const commands = each.jobs.flatMap(({ steps }) => steps.flatMap(({ run }) => run ?? []));
  expect(commands.filter((command) => command.includes('${{'))).toEqual([]);
});

test.each(workflows)('$name keeps no credentials in the checkout', ({ jobs }) => {
  const checkouts = jobs.flatMap(({ steps }) => {
    return steps.filter(({ uses }) => uses?.startsWith('actions/checkout@'));
  });
  expect(checkouts.map((step) => step.with)).toEqual(
    checkouts.map(() => ({ 'persist-credentials': false })),
  );
});

test.each(workflows)('$name lets git read the checkout in containers', ({ jobs }) => {
  const inContainers = jobs.filter(({ container }) => container !== undefined);
  expect(inContainers.length).toBeGreaterThan(0);
  for (const { steps } of inContainers) {
    const [checkout, allow] = steps;
    expect(checkout.uses).toMatch(/^actions\/checkout@/);
    expect(allow.run).toBe('git config --global --add safe.directory "$GITHUB_WORKSPACE"');
  }
});

test('the published package names the repository of its provenance', () => {
  const { jobs } = workflows.find(({ name }) => name === 'release.yml')!.workflow;
  const commands = jobs.npm.steps.flatMap(({ run }) => run ?? []);
  const publish = commands.findIndex((command) => command.startsWith('npm publish'));
  const name = commands[publish - 1];

  const directory = temporaryDirectory();
  try {
    copyFileSync(join(ROOT, 'package.json'), join(directory, 'package.json'));
    const github = { GITHUB_SERVER_URL: 'https://github.com', GITHUB_REPOSITORY: 'owner/name' };
    const env = { ...process.env, ...github };
    execFileSync('sh', ['-ec', name], { cwd: directory, env, stdio: 'pipe' });
    const manifest = JSON.parse(readFileSync(join(directory, 'package.json'), 'utf8'));
    const repository = { type: 'git', url: 'git+https://github.com/owner/name.git' };
    expect(manifest).toEqual({ ...JSON.parse(read('package.json')), repository });
  } finally {
    removeDirectory(directory);
  }
});

test('scripts and paths in the workflows exist', () => {
  for (const { text } of workflows) {
    const names = [...text.matchAll(/npm run (?:--silent )?([\w:]+)/g)].map(([, name]) => name);
    expect(names.filter((name) => !(name in scripts))).toEqual([]);
    const paths = [...text.matchAll(/(?:\.ci\/run|deploy\/[\w/]+|CONTRIBUTING\.md)/g)];
    expect(paths.map(([path]) => path).filter((path) => !existsSync(`${ROOT}/${path}`))).toEqual(
      [],
    );
  }
});
