/** Output of the benchmarks: progress on standard error, and tables of results. */

import type { AnalyticsRow } from '../load/analytics.ts';
import type { CostRow, Estimate } from '../load/analytics-cost.ts';
import type { BatchResult } from '../load/batches.ts';
import type { CheckpointRow } from '../load/checkpoints.ts';
import type { ClusterRow } from '../load/cluster.ts';
import type { ClusterAsyncRow } from '../load/cluster-async.ts';
import type { GoalRow } from '../load/cluster-goals.ts';
import type { SlidingRow } from '../load/cluster-sliding.ts';
import type { CreepRow } from '../load/creep.ts';
import type { DistinctTenth } from '../load/distinct-identifiers.ts';
import type { FairnessResult } from '../load/fairness.ts';
import type { GarbageResult } from '../load/garbage.ts';
import type { GatewayRow } from '../load/gateway.ts';
import type { HoldRow } from '../load/holds.ts';
import type { LoadResult } from '../load/http-load.ts';
import type { OpenLoopResult } from '../load/open-loop.ts';
import type { CallCost, CounterSize } from '../load/redis-calls.ts';
import type { RlsRow } from '../load/rls.ts';
import type { RestartRow } from '../load/rolling-restart.ts';
import type { ShapeResult } from '../load/shapes.ts';
import type { SoakMinute } from '../load/soak.ts';
import type { TailRow } from '../load/tail.ts';
import type { LeasePair } from '../micro/leases.ts';
import type { Range } from './rounds.ts';

/** Shows the current step; on a terminal it overwrites the previous one. */
export function showProgress(what: string): void {
  if (process.stderr.isTTY) process.stderr.write(`\r\x1b[2K${what === '' ? '' : `... ${what}`}`);
  else if (what !== '') process.stderr.write(`... ${what}\n`);
}

export function printLine(line: string): void {
  showProgress('');
  console.log(line);
}

/** The first row has the column titles. The first column is aligned left. */
export function showTable(table: readonly string[][]): void {
  const widths = table[0].map((_, column) => Math.max(...table.map((row) => row[column].length)));
  for (const row of table) {
    const cells = row.map((cell, i) =>
      i === 0 ? cell.padEnd(widths[i]) : cell.padStart(widths[i]),
    );
    printLine(cells.join('  '));
  }
}

export const formatInteger = (value: number) => Math.round(value).toLocaleString('en');
export const formatKnown = (value: number | undefined, digits: number) =>
  value?.toFixed(digits) ?? '-';
export const formatRatio = (of: Range | undefined) => {
  if (of === undefined) return '-';
  return `${of.median.toFixed(2)} (${of.min.toFixed(2)}-${of.max.toFixed(2)})`;
};

export function showFairness(results: readonly FairnessResult[]): void {
  showTable([
    ['other load', 'median', 'max'],
    ...results.map(({ load, median, max }) => {
      return [load, `${median.toFixed(1)} ms`, `${max.toFixed(1)} ms`];
    }),
  ]);
}

export function showLoad(results: readonly LoadResult[]): void {
  showTable([
    ['', 'conn', 'requests/s', 'ratio', 'p50', 'ratio', 'p99', 'p99.9', 'CPU/req', 'ratio', 'RSS'],
    ...results.map((result) => [
      result.server,
      String(result.connections),
      formatInteger(result.requestsPerSecond),
      formatRatio(result.throughputRatio),
      `${result.p50} us`,
      formatKnown(result.p50Ratio?.median, 2),
      `${result.p99} us`,
      `${result.p999} us`,
      `${formatKnown(result.cpuPerRequest, 1)} us`,
      formatKnown(result.cpuRatio?.median, 2),
      `${formatKnown(result.residentMiB, 0)} MiB`,
    ]),
  ]);
}

export function showBatches(results: readonly BatchResult[]): void {
  showTable([
    ['', 'requests/s', 'checks/s', 'CPU/check', 'checks per CPU second', 'p50', 'p99'],
    ...results.map(({ what, requestsPerSecond, checksPerSecond, cpuPerCheck, p50, p99 }) => [
      what,
      formatInteger(requestsPerSecond),
      formatInteger(checksPerSecond),
      `${formatKnown(cpuPerCheck, 2)} us`,
      cpuPerCheck === undefined ? '-' : formatInteger(1e6 / cpuPerCheck),
      `${p50} us`,
      `${p99} us`,
    ]),
  ]);
}

export function showOpenLoop({ rows }: OpenLoopResult): void {
  showTable([
    ['', 'arrivals', 'requests/s', 'p50', 'p99', 'p99.9', 'p99.99', 'p99 ratio', 'CPU/req'],
    ...rows.map((result) => [
      result.server,
      result.generator,
      formatInteger(result.requestsPerSecond),
      `${result.p50} us`,
      `${result.p99} us`,
      `${result.p999} us`,
      `${formatKnown(result.p9999, 0)} us`,
      formatRatio(result.p99Ratio),
      `${formatKnown(result.cpuPerRequest, 1)} us`,
    ]),
  ]);
}

export function showTail(rows: readonly TailRow[]): void {
  showTable([
    ['', 'load', 'requests/s', 'CPU/req', 'p50', 'p99', 'p99.9', 'longest'],
    ...rows.map((row) => {
      const [min, max] = [row.p99Range.min, row.p99Range.max].map(formatInteger);
      return [
        row.server,
        row.load,
        formatInteger(row.requestsPerSecond),
        `${formatKnown(row.cpuPerRequest, 1)} us`,
        `${formatInteger(row.p50)} us`,
        `${formatInteger(row.p99)} us (${min}-${max})`,
        `${formatInteger(row.p999)} us`,
        row.max === undefined ? '-' : `${formatInteger(row.max)} us`,
      ];
    }),
  ]);
}

export function showCreep(rows: readonly CreepRow[]): void {
  showTable([
    ['', 'load', 'requests/s', 'ratio', 'CPU/req', 'ratio'],
    ...rows.map((row) => [
      row.server,
      row.load,
      formatInteger(row.requestsPerSecond),
      formatRatio(row.throughputRatio),
      `${formatKnown(row.cpuPerRequest, 2)} us`,
      formatRatio(row.cpuRatio),
    ]),
  ]);
}

export function showHolds(rows: readonly HoldRow[]): void {
  showTable([
    ['', 'units/s', 'ratio', 'p50', 'p99', 'CPU/unit', 'ratio'],
    ...rows.map((row) => [
      row.unit,
      formatInteger(row.requestsPerSecond),
      formatRatio(row.throughputRatio),
      `${formatInteger(row.p50)} us`,
      `${formatInteger(row.p99)} us`,
      `${formatKnown(row.cpuPerRequest, 1)} us`,
      formatRatio(row.cpuRatio),
    ]),
  ]);
}

export function showRls(rows: readonly RlsRow[]): void {
  showTable([
    ['', 'load', 'calls/s', 'ratio', 'p50', 'p99', 'CPU/call', 'ratio', 'RSS'],
    ...rows.map((row) => [
      row.server,
      row.load,
      formatInteger(row.requestsPerSecond),
      formatRatio(row.throughputRatio),
      `${formatInteger(row.p50)} us`,
      `${formatInteger(row.p99)} us`,
      `${formatKnown(row.cpuPerRequest, 1)} us`,
      formatRatio(row.cpuRatio),
      `${formatKnown(row.residentMiB, 0)} MiB`,
    ]),
  ]);
}

export function showAnalytics(rows: readonly AnalyticsRow[]): void {
  showTable([
    ['load', 'with', 'requests/s', 'ratio', 'p50', 'p99', 'ratio', 'CPU/req', 'ratio', 'RSS'],
    ...rows.map((row) => [
      row.load,
      row.server,
      formatInteger(row.requestsPerSecond),
      formatRatio(row.throughputRatio),
      `${row.p50} us`,
      `${row.p99} us`,
      formatRatio(row.p99Ratio),
      `${formatKnown(row.cpuPerRequest, 2)} us`,
      formatRatio(row.cpuRatio),
      `${formatKnown(row.residentMiB, 0)} MiB`,
    ]),
  ]);
}

export function showAnalyticsCost(rows: readonly CostRow[]): void {
  const formatEstimate = ({ ratio, error }: Estimate) => `${ratio.toFixed(3)} ±${error.toFixed(3)}`;
  showTable([
    ['load', 'switched', 'compared', 'requests/s', 'CPU/req', 'of the acceptor'],
    ...rows.map(({ load, name, compared, throughput, cpu, acceptor }) => [
      ...[load, name, String(compared)],
      ...[throughput, cpu, acceptor].map(formatEstimate),
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
      formatInteger(row.live),
      row.load,
      row.server,
      formatInteger(row.requestsPerSecond),
      formatRatio(row.throughputRatio),
      `${row.p50} us`,
      `${row.p99} us`,
      formatRatio(row.p99Ratio),
      `${formatKnown(row.cpuPerRequest, 1)} us`,
      formatRatio(row.cpuRatio),
    ]),
  ]);
}

export function showCluster(rows: readonly ClusterRow[]): void {
  showTable([
    [
      ...['', 'conn', 'checks/s', 'p50', 'ratio', 'p99', 'ratio', 'CPU/check'],
      ...['Redis CPU/check', 'in scripts', 'calls/check'],
    ],
    ...rows.map((row) => [
      row.server,
      String(row.connections),
      formatInteger(row.requestsPerSecond),
      `${row.p50} us`,
      formatRatio(row.p50Ratio),
      `${row.p99} us`,
      formatRatio(row.p99Ratio),
      `${formatKnown(row.cpuPerRequest, 1)} us`,
      `${formatKnown(row.redisCpu, 1)} us`,
      `${formatKnown(row.redisScriptUs, 1)} us`,
      formatKnown(row.redisCalls, 3),
    ]),
  ]);
}

/** Figures with a goal are followed by it. */
export function showGoals(rows: readonly GoalRow[]): void {
  showTable([
    [
      ...['', 'load', 'arrivals', 'decisions', 'too many', 'denials', 'false', 'unproven'],
      ...[
        'no Redis',
        'silent',
        'exhausted',
        'used',
        'commands',
        'goal',
        'all calls',
        'waited',
        'goal',
      ],
      ...['p50', 'p99', 'goal', 'cores', 'others', 'goals'],
    ],
    ...rows.map((row) => [
      row.name,
      row.load === undefined ? '-' : `${row.load} x`,
      row.arrivals,
      formatInteger(row.decisions),
      String(row.overAdmission),
      formatInteger(row.denials),
      String(row.certainlyFalse),
      String(row.unproven),
      String(row.withoutRedis),
      String(row.writtenOff),
      String(row.exhausted),
      row.exhausted === 0 ? '-' : row.leastUtilisation.toFixed(4),
      row.commands.toFixed(4),
      String(row.goal.commands),
      row.calls.toFixed(4),
      row.waited.toFixed(4),
      row.goal.waited === undefined ? '-' : String(row.goal.waited),
      `${row.p50Ms.toFixed(1)} ms`,
      `${row.p99Ms.toFixed(1)} ms`,
      String(row.goal.p99Ms),
      row.cores.toFixed(1),
      row.otherCores.toFixed(1),
      row.missed.length === 0 ? 'met' : `missed: ${row.missed.join(', ')}`,
    ]),
  ]);
}

export function showClusterSliding(rows: readonly SlidingRow[]): void {
  showTable([
    [
      ...['', 'limit', 'arrivals', 'checks/s', 'used', 'too many', 'commands', 'waited'],
      ...['p50', 'p99', 'shared', 'unproven', 'no Redis'],
    ],
    ...rows.map((row) => [
      row.rule,
      `${formatInteger(row.limit)} / 1 s`,
      row.arrivals,
      formatInteger(row.checksPerSecond),
      row.used.toFixed(3),
      String(row.overAdmission),
      row.commands.toFixed(3),
      row.waited.toFixed(3),
      `${row.p50Ms.toFixed(2)} ms`,
      `${row.p99Ms.toFixed(1)} ms`,
      formatKnown(row.shared, 3),
      String(row.unproven),
      String(row.withoutRedis),
    ]),
  ]);
}

export function showClusterAsync(rows: readonly ClusterAsyncRow[]): void {
  showTable([
    ['', 'load', 'limit', 'windows', 'mean', 'worst', 'checks/s', 'not sent', 'calls/check'],
    ...rows.flatMap(({ machines, load, checks, skipped, seconds, redisCallsPerCheck, rows }) => {
      return rows.map(({ limit, durationMs, windows, mean, worst }) => [
        `${machines} machines`,
        `${load} x`,
        `${formatInteger(limit)} / ${durationMs / 1_000} s`,
        String(windows),
        mean.toFixed(3),
        worst.toFixed(3),
        formatInteger(checks / seconds),
        formatInteger(skipped),
        formatKnown(redisCallsPerCheck, 4),
      ]);
    }),
  ]);
}

export function showLeasePairs(pairs: readonly LeasePair[]): void {
  showTable([
    ['', 'memory', 'lease', 'ratio of p50', 'ratio of p99'],
    ...pairs.map(({ name, memoryNs, leaseNs, p50Ratio, p99Ratio }) => [
      name,
      `${formatInteger(memoryNs)} ns`,
      `${formatInteger(leaseNs)} ns`,
      formatRatio(p50Ratio),
      formatRatio(p99Ratio),
    ]),
  ]);
}

export function showCalls(calls: readonly CallCost[]): void {
  showTable([
    ['', 'messages', 'CPU/call', 'in the script', 'CPU/message', 'ratio'],
    ...calls.map(({ what, messages, cpuUs, scriptUs, ratio }) => [
      what,
      String(messages),
      `${cpuUs.toFixed(1)} us`,
      `${scriptUs.toFixed(1)} us`,
      messages === 0 ? '-' : `${(cpuUs / messages).toFixed(1)} us`,
      formatRatio(ratio),
    ]),
  ]);
}

export function showSizes(sizes: readonly CounterSize[]): void {
  showTable([
    ['machines', 'key of a window', 'list of durations', 'all'],
    ...sizes.map(({ machines, keyBytes, indexBytes, totalBytes }) => [
      String(machines),
      `${keyBytes} bytes`,
      `${indexBytes} bytes`,
      `${formatInteger(totalBytes)} bytes`,
    ]),
  ]);
}

/** `added` is the difference to the first row with the same number of connections. */
export function showGateway(rows: readonly GatewayRow[]): void {
  showTable([
    ['', 'conn', 'requests/s', 'ratio', 'p50', 'added', 'p99', 'CPU/req', 'ratio'],
    ...rows.map((row) => {
      const first = rows.find(({ connections }) => connections === row.connections);
      return [
        row.what,
        String(row.connections),
        formatInteger(row.requestsPerSecond),
        formatRatio(row.throughputRatio),
        `${row.p50} us`,
        `${row.p50 - (first?.p50 ?? 0)} us`,
        `${row.p99} us`,
        `${formatKnown(row.cpuPerRequest, 1)} us`,
        formatRatio(row.cpuRatio),
      ];
    }),
  ]);
}

export function showShapes(results: readonly ShapeResult[]): void {
  showTable([
    ['connections', 'at once', 'identifiers', '', 'bare', 'weir', 'ratio', 'p50', 'p99', 'CPU/req'],
    ...results.map(({ connections, pipelining, identifiers, isDenied, bare, weir }) => [
      String(connections),
      String(pipelining),
      formatInteger(identifiers),
      isDenied ? 'denied' : 'allowed',
      formatInteger(bare.requestsPerSecond),
      formatInteger(weir.requestsPerSecond),
      formatRatio(weir.throughputRatio),
      weir.p50 === 0 ? '-' : `${weir.p50} us`,
      weir.p99 === 0 ? '-' : `${weir.p99} us`,
      `${formatKnown(weir.cpuPerRequest, 1)} us`,
    ]),
  ]);
}

export function showGarbage(results: readonly GarbageResult[]): void {
  showTable([
    ['', 'bytes/check', 'collections/s', 'longest pause', 'paused'],
    ...results.map((result) => [
      result.server,
      formatInteger(result.bytesPerCheck),
      result.collectionsPerSecond.toFixed(1),
      `${result.longestPauseMs.toFixed(1)} ms`,
      `${result.pausedPercent.toFixed(2)} %`,
    ]),
  ]);
}

export function formatDistinctTenth(tenth: DistinctTenth): string {
  const { identifiers, checksPerSecond, cpuPerCheck, residentMiB } = tenth;
  const rate = formatInteger(checksPerSecond).padStart(9);
  const cpu = cpuPerCheck.toFixed(2);
  const memory = residentMiB.toFixed(1).padStart(6);
  const count = formatInteger(identifiers).padStart(13);
  return `${count}  ${rate} checks/s  ${cpu} us CPU/check  ${memory} MiB`;
}

const RESTART_COLUMNS: readonly [title: string, of: (row: RestartRow) => string][] = [
  ['over, 1 s', ({ over }) => String(over.second)],
  ['over, 60 s', ({ over }) => String(over.minute)],
  ['denied falsely', ({ deniedFalsely }) => String(deniedFalsely)],
  ['failed', ({ failed }) => String(failed)],
  ['no answer', ({ unanswered }) => String(unanswered)],
  ['sent again', ({ repeated }) => String(repeated)],
  ['no Redis', ({ withoutRedis }) => String(withoutRedis)],
  ['not sent', ({ notSent }) => String(notSent)],
  ['p99 ms', ({ p99Ms }) => p99Ms.toFixed(1)],
  ['longest ms', ({ longestMs }) => longestMs.toFixed(0)],
  ['client paused ms', ({ pauseMs }) => pauseMs.toFixed(0)],
  ['load', ({ load }) => load.toFixed(1)],
];

/** The rounds, and their medians. */
export function showRestarts(rows: readonly RestartRow[]): void {
  const loads = [...new Set(rows.map(({ busyLoops }) => busyLoops))];
  const places = loads.map((busyLoops) => {
    const place = busyLoops === 0 ? 'alone' : `beside ${busyLoops} busy loops`;
    const own = rows.filter((row) => row.busyLoops === busyLoops);
    const cells = own.map((row) => RESTART_COLUMNS.map(([, of]) => of(row)));
    const medians = RESTART_COLUMNS.map((_, column) => {
      const sorted = cells.map((row) => row[column]).sort((a, b) => Number(a) - Number(b));
      return sorted[Math.floor(sorted.length / 2)];
    });
    return [...cells.map((row) => [place, ...row]), [`median ${place}`, ...medians]];
  });
  showTable([['', ...RESTART_COLUMNS.map(([title]) => title)], ...places.flat()]);
}

export function formatSoakMinute(of: SoakMinute): string {
  const rate = formatInteger(of.requestsPerSecond).padStart(8);
  const latencies = `p50 ${of.p50} us  p99 ${of.p99} us`;
  const resources = `${of.residentMiB.toFixed(1)} MiB  ${of.descriptors} descriptors`;
  return `minute ${String(of.minute).padStart(2)}  ${rate} requests/s  ${latencies}  ${resources}`;
}
