/** What the benchmarks say: what is being done, and tables of what was found. */

import type { CheckpointRow } from './checkpoints.ts';
import type { DistinctTenth } from './distinct.ts';
import type { GarbageResult } from './garbage.ts';
import type { GatewayRow } from './gateway.ts';
import type { LoadResult } from './load.ts';
import type { ManyResult } from './many.ts';
import type { OpenResult } from './open.ts';
import type { Spread } from './rounds.ts';
import type { ShapeResult } from './shapes.ts';
import type { SoakMinute } from './soak.ts';

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

export function showMany(results: readonly ManyResult[]): void {
  showTable([
    ['', 'requests/s', 'checks/s', 'CPU/check', 'checks per CPU second', 'p50', 'p99'],
    ...results.map(({ what, requestsPerSecond, checksPerSecond, cpuPerCheck, p50, p99 }) => [
      what,
      whole(requestsPerSecond),
      whole(checksPerSecond),
      `${known(cpuPerCheck, 2)} us`,
      cpuPerCheck === undefined ? '-' : whole(1e6 / cpuPerCheck),
      `${p50} us`,
      `${p99} us`,
    ]),
  ]);
}

export function showOpen({ rows }: OpenResult): void {
  showTable([
    ['', 'arrivals', 'requests/s', 'p50', 'p99', 'p99.9', 'p99.99', 'p99 ratio', 'CPU/req'],
    ...rows.map((result) => [
      result.server,
      result.generator,
      whole(result.requestsPerSecond),
      `${result.p50} us`,
      `${result.p99} us`,
      `${result.p999} us`,
      `${known(result.p9999, 0)} us`,
      ratio(result.p99Ratio),
      `${known(result.cpuPerRequest, 1)} us`,
    ]),
  ]);
}

export function showCheckpoints(rows: readonly CheckpointRow[]): void {
  showTable([
    [
      'counters',
      'load',
      'checkpoints',
      'requests/s',
      'ratio',
      'p50',
      'p99',
      'ratio',
      'CPU/req',
      '',
    ],
    ...rows.map((row) => [
      whole(row.live),
      row.load,
      row.server,
      whole(row.requestsPerSecond),
      ratio(row.throughputRatio),
      `${row.p50} us`,
      `${row.p99} us`,
      ratio(row.p99Ratio),
      `${known(row.cpuPerRequest, 1)} us`,
      ratio(row.cpuRatio),
    ]),
  ]);
}

/** The first of each number of connections is what the others add to. */
export function showGateway(rows: readonly GatewayRow[]): void {
  showTable([
    ['', 'conn', 'requests/s', 'ratio', 'p50', 'added', 'p99', 'CPU/req', 'ratio'],
    ...rows.map((row) => {
      const first = rows.find(({ connections }) => connections === row.connections);
      return [
        row.what,
        String(row.connections),
        whole(row.requestsPerSecond),
        ratio(row.throughputRatio),
        `${row.p50} us`,
        `${row.p50 - (first?.p50 ?? 0)} us`,
        `${row.p99} us`,
        `${known(row.cpuPerRequest, 1)} us`,
        ratio(row.cpuRatio),
      ];
    }),
  ]);
}

export function showShapes(results: readonly ShapeResult[]): void {
  showTable([
    ['connections', 'at once', 'identifiers', '', 'bare', 'weir', 'ratio', 'p50', 'p99', 'CPU/req'],
    ...results.map(({ connections, pipelining, identifiers, isRefused, bare, weir }) => [
      String(connections),
      String(pipelining),
      whole(identifiers),
      isRefused ? 'refused' : 'admitted',
      whole(bare.requestsPerSecond),
      whole(weir.requestsPerSecond),
      ratio(weir.throughputRatio),
      weir.p50 === 0 ? '-' : `${weir.p50} us`,
      weir.p99 === 0 ? '-' : `${weir.p99} us`,
      `${known(weir.cpuPerRequest, 1)} us`,
    ]),
  ]);
}

export function showGarbage(results: readonly GarbageResult[]): void {
  showTable([
    ['', 'bytes/check', 'collections/s', 'longest pause', 'paused'],
    ...results.map((result) => [
      result.server,
      whole(result.bytesPerCheck),
      result.collectionsPerSecond.toFixed(1),
      `${result.longestPauseMs.toFixed(1)} ms`,
      `${result.pausedPercent.toFixed(2)} %`,
    ]),
  ]);
}

export function distinctLine(tenth: DistinctTenth): string {
  const { identifiers, checksPerSecond, cpuPerCheck, residentMiB } = tenth;
  const rate = whole(checksPerSecond).padStart(9);
  const cpu = cpuPerCheck.toFixed(2);
  const memory = residentMiB.toFixed(1).padStart(6);
  return `${whole(identifiers).padStart(13)}  ${rate} checks/s  ${cpu} us CPU/check  ${memory} MiB`;
}

export function soakLine(of: SoakMinute): string {
  const rate = whole(of.requestsPerSecond).padStart(8);
  const latencies = `p50 ${of.p50} us  p99 ${of.p99} us`;
  const kept = `${of.residentMiB.toFixed(1)} MiB  ${of.descriptors} descriptors`;
  return `minute ${String(of.minute).padStart(2)}  ${rate} requests/s  ${latencies}  ${kept}`;
}
