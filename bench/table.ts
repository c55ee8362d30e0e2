/** What the benchmarks say: what is being done, and tables of what was found. */

import type { LoadResult } from './load.ts';
import type { Spread } from './rounds.ts';

/** Says what is being done, over the last such line where that can be. */
export function progress(what: string): void {
  if (process.stderr.isTTY) process.stderr.write(`\r\x1b[2K${what === '' ? '' : `... ${what}`}`);
  else if (what !== '') process.stderr.write(`... ${what}\n`);
}

export function say(line: string): void {
  progress('');
  console.log(line);
}

/** The first row has the names of the columns; the first column is text. */
export function showTable(table: readonly string[][]): void {
  const widths = table[0].map((_, column) => Math.max(...table.map((row) => row[column].length)));
  for (const row of table) {
    const cells = row.map((cell, i) =>
      i === 0 ? cell.padEnd(widths[i]) : cell.padStart(widths[i]),
    );
    say(cells.join('  '));
  }
}

export const whole = (value: number) => Math.round(value).toLocaleString('en');
export const known = (value: number | undefined, digits: number) => value?.toFixed(digits) ?? '-';
export const ratio = (of: Spread | undefined) => {
  if (of === undefined) return '-';
  return `${of.median.toFixed(2)} (${of.least.toFixed(2)}-${of.most.toFixed(2)})`;
};

export function showLoad(results: readonly LoadResult[]): void {
  showTable([
    ['', 'conn', 'requests/s', 'ratio', 'p50', 'ratio', 'p99', 'p99.9', 'CPU/req', 'ratio', 'RSS'],
    ...results.map((result) => [
      result.server,
      String(result.connections),
      whole(result.requestsPerSecond),
      ratio(result.throughputRatio),
      `${result.p50} us`,
      known(result.p50Ratio?.median, 2),
      `${result.p99} us`,
      `${result.p999} us`,
      `${known(result.cpuPerRequest, 1)} us`,
      known(result.cpuRatio?.median, 2),
      `${known(result.residentMiB, 0)} MiB`,
    ]),
  ]);
}
