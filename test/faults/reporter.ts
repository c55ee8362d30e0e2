/** Prints the table of promises when all tests have run: each figure, and whether its test passed. */

import type { Reporter, TestModule } from 'vitest/node';
import { type Figure, PROMISES, type PromiseName } from './promises.ts';

interface Row extends Figure {
  passed: boolean;
}

const HEAD = ['', 'fault', 'tried', 'measured', ''];
/** A column is no wider, but for a cell that is longer by itself. */
const WIDTH_MOST = 50;

export default class PromiseTable implements Reporter {
  onTestRunEnd(modules: readonly TestModule[]): void {
    const rows: Row[] = modules.flatMap((module) =>
      [...module.children.allTests()].flatMap((test) => {
        const passed = test.result().state === 'passed';
        return (test.meta().figures ?? []).map((figure) => ({ ...figure, passed }));
      }),
    );
    if (rows.length > 0) process.stdout.write(`\n${tableOf(rows)}\n`);
  }
}

function tableOf(rows: readonly Row[]): string {
  const names = Object.keys(PROMISES) as PromiseName[];
  const cells = rows.map(({ fault, trials, measured, passed }) => {
    return ['', fault, trials, measured, passed ? 'kept' : 'BROKEN'];
  });
  const widths = HEAD.map((head, column) => {
    if (column === 0) return 3;
    const widest = Math.max(head.length, ...cells.map((row) => row[column].length));
    return Math.min(WIDTH_MOST, widest);
  });
  const line = (row: readonly string[]) => {
    return row
      .map((cell, column) => cell.padEnd(widths[column]))
      .join('  ')
      .trimEnd();
  };
  const lines = [line(HEAD)];
  for (const name of names) {
    const own = cells.filter((_, i) => rows[i].promise === name);
    if (own.length === 0) continue;
    lines.push('', `${name.padEnd(3)}  ${PROMISES[name]}`, ...own.map(line));
  }
  return lines.join('\n');
}
