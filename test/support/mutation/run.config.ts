/**
 * The configuration of vitest in a work copy: the projects of the checkout, restricted to the test
 * files of a plan. It appends the result of each test file to a file, as a line of JSON.
 */

import { appendFileSync, readFileSync } from 'node:fs';
import { relative } from 'node:path';
import { defineConfig, type TestProjectConfiguration } from 'vitest/config';
import { BaseSequencer, type Reporter, type TestModule, type TestSpecification } from 'vitest/node';
import base from '../../vitest.config.ts';
import type { FileResult, TestPlan } from './test-run.ts';

const plan: TestPlan = JSON.parse(readFileSync(process.env.MUTATION_RUN ?? '', 'utf8'));
const isSamePath = (moduleId: string, path: string) => relative(process.cwd(), moduleId) === path;

class ResultWriter implements Reporter {
  onTestModuleEnd(module: TestModule): void {
    const { duration, collectDuration, setupDuration, prepareDuration } = module.diagnostic();
    const [test] = module.children.allTests('failed');
    const result: FileResult = {
      project: module.project.name,
      path: relative(process.cwd(), module.moduleId),
      state: module.state(),
      seconds: (duration + collectDuration + setupDuration + prepareDuration) / 1_000,
      failure: test?.fullName ?? module.errors()[0]?.message ?? '',
    };
    appendFileSync(plan.resultsFile, `${JSON.stringify(result)}\n`);
  }
}

/** Runs the files in the order of the plan. */
class PlanOrder extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const place = ({ moduleId, project }: TestSpecification) => {
      return plan.files.findIndex((file) => {
        return file.project === project.name && isSamePath(moduleId, file.path);
      });
    };
    return files.toSorted((a, b) => place(a) - place(b));
  }
}

function restrict(project: TestProjectConfiguration): TestProjectConfiguration[] {
  if (typeof project !== 'object' || !('test' in project)) {
    throw new Error('mutation tests need projects that are objects in the configuration of vitest');
  }
  const { name = '', setupFiles = [], env, ...rest } = project.test ?? {};
  const label = typeof name === 'string' ? name : name.label;
  const include = plan.files.filter((file) => file.project === label).map(({ path }) => path);
  if (include.length === 0) return [];
  const test = {
    ...rest,
    name,
    include,
    setupFiles: [`${import.meta.dirname}/run.setup.ts`, ...[setupFiles].flat()],
    env: { ...env, MUTATION_PROJECT: label },
    // A module that several files share is executed once. Only isolated files show that all use it.
    ...(plan.isSerial ? { maxWorkers: 1, sequence: { groupOrder: 0 } } : { isolate: true }),
  };
  return [{ ...project, cacheDir: 'dist/vite-cache', test }];
}

const { projects = [{ test: { ...base.test } }], ...shared } = base.test ?? {};
export default defineConfig({
  ...base,
  cacheDir: 'dist/vite-cache',
  test: {
    ...shared,
    reporters: ['default', new ResultWriter()],
    bail: plan.isSerial ? 1 : 0,
    ...(plan.isSerial ? { sequence: { sequencer: PlanOrder } } : {}),
    projects: projects.flatMap(restrict),
  },
});
