/** Prints the ten slowest files after all tests, so that growth is seen. */

import { relative } from 'node:path';
import type { Reporter, TestModule } from 'vitest/node';

const FILES_MAX = 10;

export default class SlowestFilesReporter implements Reporter {
  onTestRunEnd(modules: readonly TestModule[]): void {
    const files = modules.map((module) => ({
      path: relative(process.cwd(), module.moduleId),
      ms: module.diagnostic().duration,
    }));
    if (files.length <= 1) return;
    const slowest = files.toSorted((a, b) => b.ms - a.ms).slice(0, FILES_MAX);
    const lines = slowest.map(
      ({ path, ms }) => `${(ms / 1_000).toFixed(1).padStart(7)} s  ${path}`,
    );
    process.stdout.write(`\nSlowest files:\n${lines.join('\n')}\n`);
  }
}
