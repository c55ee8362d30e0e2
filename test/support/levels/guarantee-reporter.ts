/**
 * Prints the table of guarantees after all tests: each measurement, and whether its test passed.
 */

import type { Reporter, TestModule } from 'vitest/node';
import { GUARANTEES, type GuaranteeName, type Measurement } from '../guarantees.ts';

interface ReportRow extends Measurement {
  passed: boolean;
}

const COLUMN_TITLES = ['', 'fault', 'trials', 'measured', ''];
/** Maximum width of a padded column. A longer cell is printed in full. */
const COLUMN_WIDTH_MAX = 50;

export default class GuaranteeReporter implements Reporter {
  onTestRunEnd(modules: readonly TestModule[]): void {
    const rows: ReportRow[] = modules.flatMap((module) =>
      [...module.children.allTests()].flatMap((test) => {
        const passed = test.result().state === 'passed';
        return (test.meta().figures ?? []).map((figure) => ({ ...figure, passed }));
      }),
    );
    if (rows.length > 0) process.stdout.write(`\n${formatTable(rows)}\n`);
  }
}

function formatTable(rows: readonly ReportRow[]): string {
  const names = Object.keys(GUARANTEES) as GuaranteeName[];
  const cells = rows.map(({ fault, trials, measured, passed }) => {
    return ['', fault, trials, measured, passed ? 'held' : 'BROKEN'];
  });
  const widths = COLUMN_TITLES.map((head, column) => {
    if (column === 0) return 3;
    const widest = Math.max(head.length, ...cells.map((row) => row[column].length));
    return Math.min(COLUMN_WIDTH_MAX, widest);
  });
  const line = (row: readonly string[]) => {
    return row
      .map((cell, column) => cell.padEnd(widths[column]))
      .join('  ')
      .trimEnd();
  };
  const lines = [line(COLUMN_TITLES)];
  for (const name of names) {
    const own = cells.filter((_, i) => rows[i].guarantee === name);
    if (own.length === 0) continue;
    lines.push('', `${name.padEnd(3)}  ${GUARANTEES[name]}`, ...own.map(line));
  }
  return lines.join('\n');
}
