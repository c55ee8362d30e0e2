/** Prints after all tests which were skipped, and the ten slowest files, so that growth is seen. */

import { relative } from 'node:path';
import type { Reporter, TestModule } from 'vitest/node';

const FILES_MAX = 10;

const pathOf = (module: TestModule) => relative(process.cwd(), module.moduleId);

export default class LevelReporter implements Reporter {
  onTestRunEnd(modules: readonly TestModule[]): void {
    const skipped = modules.flatMap((module) => {
      const names = [...module.children.allTests('skipped')].map(({ fullName }) => fullName);
      return names.map((name) => `  ${pathOf(module)} > ${name}`);
    });
    if (skipped.length > 0) print(`Skipped: ${skipped.length} tests`, skipped);
    if (modules.length <= 1) return;
    const slowest = modules
      .map((module) => ({ path: pathOf(module), ms: module.diagnostic().duration }))
      .toSorted((a, b) => b.ms - a.ms)
      .slice(0, FILES_MAX)
      .map(({ path, ms }) => `${(ms / 1_000).toFixed(1).padStart(7)} s  ${path}`);
    print('Slowest files:', slowest);
  }
}

function print(title: string, lines: readonly string[]): void {
  process.stdout.write(`\n${title}\n${lines.join('\n')}\n`);
}
