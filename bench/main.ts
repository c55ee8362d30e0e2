/**
 * `npm run bench` measures the steps of a check, scaling to two threads, the queue to a shard
 * worker and back, HTTP load on weir and on its baselines, load in other shapes, garbage, batches
 * of checks, overrides, a Unix socket, an open loop, counters in Redis, the accuracy of both
 * windows, the spread of connections, and start and idle costs. It prints tables, and writes
 * bench/results/result.json and result.svg. With names of parts, as in `npm run bench -- accuracy`,
 * it runs only those and writes nothing. Long parts run only by name. `npm run bench -- distinct
 * 1000000` also gives the amount.
 */

import { writeFileSync } from 'node:fs';
import { cpus } from 'node:os';
import { Bench } from 'tinybench';
import { setV8Flags } from '../src/runtime/v8-flags.ts';
import { measureAnalytics } from './load/analytics.ts';
import { measureAnalyticsCost } from './load/analytics-cost.ts';
import { measureBatches } from './load/batches.ts';
import { measureCheckpoints } from './load/checkpoints.ts';
import { measureCluster } from './load/cluster.ts';
import { measureClusterAsync } from './load/cluster-async.ts';
import { measureClusterFaults } from './load/cluster-faults.ts';
import { GOALS_SECONDS, measureGoals } from './load/cluster-goals.ts';
import { measureClusterSliding } from './load/cluster-sliding.ts';
import { measureSpread } from './load/connection-spread.ts';
import { measureCreep } from './load/creep.ts';
import {
  DISTINCT_DEFAULT,
  measureDistinct,
  relativeRangePercent,
} from './load/distinct-identifiers.ts';
import { measureFairness } from './load/fairness.ts';
import { measureGarbage } from './load/garbage.ts';
import { measureGateway } from './load/gateway.ts';
import { measureHolds } from './load/holds.ts';
import { measureLoad, startServers } from './load/http-load.ts';
import { measureOpenLoop } from './load/open-loop.ts';
import { measureOverrides } from './load/overrides.ts';
import { measureCalls, measureSizes } from './load/redis-calls.ts';
import { measureRls } from './load/rls.ts';
import { measureRollingRestarts, RESTART_ROUNDS } from './load/rolling-restart.ts';
import { measureShapes } from './load/shapes.ts';
import { runSoak, SOAK_MINUTES } from './load/soak.ts';
import { measureStartAndIdle } from './load/start-and-idle.ts';
import { measureTail, TAIL_ROUNDS } from './load/tail.ts';
import { measureUnix } from './load/unix-socket.ts';
import { accuracyTable, measureAccuracy } from './micro/accuracy.ts';
import { type BenchSubject, stepSubjects } from './micro/check-steps.ts';
import { leaseSubjects, measureLeasePairs } from './micro/leases.ts';
import { startQueueBench } from './micro/queue.ts';
import { measureOversubscription, measureScaling } from './micro/thread-scaling.ts';
import { hasRedis } from './peers/redis-server.ts';
import { loadChart } from './support/chart.ts';
import { hasH2load } from './support/h2load.ts';
import { GENERATOR, hasWrk } from './support/load-generator.ts';
import { hasNginx } from './support/nginx.ts';
import {
  formatDistinctTenth,
  formatInteger,
  formatKnown,
  formatSoakMinute,
  printLine,
  showAnalytics,
  showAnalyticsCost,
  showBatches,
  showCalls,
  showCheckpoints,
  showCluster,
  showClusterAsync,
  showClusterSliding,
  showCreep,
  showFairness,
  showGarbage,
  showGateway,
  showGoals,
  showHolds,
  showLeasePairs,
  showLoad,
  showOpenLoop,
  showProgress,
  showRestarts,
  showRls,
  showShapes,
  showSizes,
  showTail,
} from './support/output.ts';

interface StepResult {
  name: string;
  medianNs: number;
  p99Ns: number;
}

async function measureSteps(subjects: readonly BenchSubject[]): Promise<StepResult[]> {
  const bench = new Bench({ time: 400, warmupTime: 200 });
  for (const { name, run } of subjects) bench.add(name, run);
  const results: StepResult[] = [];
  bench.addEventListener('cycle', ({ task }) => {
    const subject = subjects.find(({ name }) => name === task?.name);
    const { result } = task ?? {};
    if (result?.state !== 'completed' || subject === undefined) {
      throw new Error(`${task?.name}: ${result?.state}`);
    }
    // Latencies are in ms, for all iterations of one run.
    const nanoseconds = (ms: number) => (ms * 1e6) / subject.count;
    const { p50, p99 } = result.latency;
    const step = { name: subject.name, medianNs: nanoseconds(p50), p99Ns: nanoseconds(p99) };
    results.push(step);
    const shown = (ns: number) => ns.toFixed(0).padStart(7);
    printLine(
      `${step.name.padEnd(40)} median ${shown(step.medianNs)} ns   p99 ${shown(step.p99Ns)} ns`,
    );
  });
  await bench.run();
  return results;
}

// As the server does; it applies to the threads of the benchmarks too.
setV8Flags();

const [cpu] = cpus();
const machine = `Node ${process.versions.node}, ${cpus().length} x ${cpu.model}`;

/** The parts: each prints its table, and returns its results. */
const PARTS = {
  steps: async () => {
    printLine('');
    const steps = await measureSteps([...stepSubjects(), ...leaseSubjects()]);
    const queue = startQueueBench();
    steps.push(...(await measureSteps(queue.subjects)));
    await queue.stop();
    return steps;
  },
  scaling: async () => {
    printLine('\nhash + decide, decisions per second:');
    showProgress('two threads');
    const scaling = await measureScaling();
    for (const { name, one, two } of scaling) {
      const millions = (rate: number) => `${(rate / 1e6).toFixed(1)} M`.padStart(7);
      const both = `1 thread ${millions(one)}   2 threads ${millions(two)}`;
      printLine(`${name.padEnd(40)} ${both}   ratio ${(two / one).toFixed(2)}`);
    }
    showProgress('more threads than cores');
    const oversubscription = await measureOversubscription();
    printLine('\nduration of a decision with more threads than cores:');
    for (const { name, medianUs, p999Us, maxUs } of oversubscription) {
      const tail = `p99.9 ${p999Us.toFixed(1)} us   max ${(maxUs / 1_000).toFixed(1)} ms`;
      printLine(`${name.padEnd(40)} median ${medianUs.toFixed(2)} us   ${tail}`);
    }
    return { scaling, oversubscription };
  },
  load: async () => {
    const load = await measureLoad(await startServers(), showProgress);
    printLine(`\nHTTP, by ${GENERATOR}; ratios to the bare server that parses, in the same round:`);
    showLoad(load);
    return load;
  },
  shapes: async () => {
    const shapes = await measureShapes(showProgress);
    printLine(
      '\nHTTP in other shapes; weir in place, ratio to the bare server, in the same round:',
    );
    showShapes(shapes);
    return shapes;
  },
  garbage: async () => {
    const garbage = await measureGarbage(showProgress);
    printLine('\ngarbage under load, 64 connections:');
    showGarbage(garbage);
    return garbage;
  },
  many: async () => {
    const many = await measureBatches(showProgress);
    printLine('\nbatches of checks, one acceptor, 64 connections:');
    showBatches(many);
    return many;
  },
  overrides: async () => {
    const overrides = await measureOverrides(showProgress);
    printLine('\noverrides at their limits, 100,000 exact and 10,000 with a wildcard:');
    for (const { what, median, p99, max, unit } of overrides.figures) {
      const [name, last] = max === undefined ? ['p99', p99] : ['max', max];
      const tail = last === undefined ? '' : `   ${name} ${last.toFixed(1).padStart(7)} ${unit}`;
      printLine(`${what.padEnd(52)} median ${median.toFixed(1).padStart(7)} ${unit}${tail}`);
    }
    printLine('\nHTTP with overrides; ratios to the server without any, in the same round:');
    showLoad(overrides.load);
    return overrides;
  },
  unix: async () => {
    const unix = hasH2load ? await measureUnix(showProgress) : undefined;
    printLine('\nUnix socket and loopback TCP, one identifier, by h2load:');
    if (unix === undefined)
      printLine('skipped: weir serves no Unix socket here, or h2load is not installed');
    else showLoad(unix);
    return unix;
  },
  open: async () => {
    const open = await measureOpenLoop(showProgress);
    printLine(`\nopen loop, ${formatInteger(open.rate)} requests per second, 64 connections:`);
    showOpenLoop(open);
    return open;
  },
  cluster: async () => {
    const pairs = measureLeasePairs(showProgress);
    printLine('\ndecisions from leases; ratios to the engine in memory, in the same round:');
    showLeasePairs(pairs);
    if (!hasRedis || !hasWrk) {
      printLine('\nwith Redis: skipped, because redis-server or wrk is not installed');
      return { pairs };
    }
    const calls = await measureCalls(showProgress);
    printLine('\nCPU time of Redis for a call; ratios by message to the plain script:');
    showCalls(calls);
    const sizes = await measureSizes(showProgress);
    printLine('\nmemory of Redis for a counter, by machines that have used it:');
    showSizes(sizes);
    const load = await measureCluster(showProgress);
    printLine('\nHTTP with leases; ratios to the engine in memory, in the same round:');
    showCluster(load.leased);
    printLine('\nHTTP with new identifiers; ratios to the engine in memory, in the same round:');
    showCluster(load.cold);
    return { pairs, calls, sizes, ...load };
  },
  accuracy: async () => {
    showProgress('accuracy');
    const accuracy = measureAccuracy();
    printLine('\nboth windows and an exact log, 100 in 60 s; demand and maximum are in limits:');
    for (const line of accuracyTable(accuracy)) printLine(line);
    return accuracy;
  },
  spread: async () => {
    const spread = await measureSpread(showProgress);
    printLine('\nshare of the busiest acceptor, with long-lived connections:');
    for (const { acceptors, connections, meanShare, maxShare } of spread) {
      const [mean, max] = [meanShare, maxShare].map((share) => formatInteger(100 * share));
      const shares = `mean ${mean} %   max ${max} %`;
      printLine(`${acceptors} acceptors, ${connections} connections   ${shares}`);
    }
    return spread;
  },
  rest: async () => {
    const rest = await measureStartAndIdle(showProgress);
    printLine('\nfrom the start of the process to its first response, and when idle:');
    for (const { what, medianMs, maxMs } of rest.starts) {
      printLine(
        `${what.padEnd(32)} median ${formatInteger(medianMs)} ms` +
          `   max ${formatInteger(maxMs)} ms`,
      );
    }
    for (const { counters, residentMiB, cpuShare } of rest.rests) {
      const cpu = formatKnown(cpuShare === undefined ? undefined : 100 * cpuShare, 1);
      const memory = `${formatKnown(residentMiB, 0)} MiB`;
      printLine(
        `${`${formatInteger(counters)} counters`.padEnd(32)} ${memory}   ${cpu} % of a core`,
      );
    }
    return rest;
  },
};

async function runAll(): Promise<void> {
  const result = {
    machine,
    generator: GENERATOR,
    steps: await PARTS.steps(),
    scaling: await PARTS.scaling(),
    load: await PARTS.load(),
    shapes: await PARTS.shapes(),
    garbage: await PARTS.garbage(),
    many: await PARTS.many(),
    overrides: await PARTS.overrides(),
    unix: await PARTS.unix(),
    open: await PARTS.open(),
    cluster: await PARTS.cluster(),
    accuracy: await PARTS.accuracy(),
    spread: await PARTS.spread(),
    rest: await PARTS.rest(),
  };
  const resultUrl = (name: string) => new URL(`../../bench/results/${name}`, import.meta.url);
  writeFileSync(resultUrl('result.json'), `${JSON.stringify(result, undefined, 2)}\n`);
  writeFileSync(
    resultUrl('result.svg'),
    loadChart(result.load, `${machine}, ${GENERATOR} on the same machine`),
  );
  printLine('\nbench/results/result.json and bench/results/result.svg are written');
}

/** Parts that run for minutes, and only by name; a number after the name is the amount. */
const LONG_PARTS = {
  distinct: async (identifiers = DISTINCT_DEFAULT) => {
    printLine(
      `\n${formatInteger(identifiers)} distinct identifiers through 1,048,576 counters,` +
        ' at each tenth:',
    );
    const tenths = await measureDistinct(identifiers, (tenth) =>
      printLine(formatDistinctTenth(tenth)),
    );
    const afterFirst = tenths.slice(1);
    const range = (values: number[]) => relativeRangePercent(values).toFixed(1);
    const memory = range(afterFirst.map(({ residentMiB }) => residentMiB));
    const rate = range(afterFirst.map(({ checksPerSecond }) => checksPerSecond));
    printLine(`after the first tenth memory is within ${memory} %, the rate within ${rate} %`);
  },
  analytics: async () => {
    const rows = await measureAnalytics(showProgress);
    printLine(
      '\nwith analytics and events, each beside the first at once; ratios in the same round:',
    );
    showAnalytics(rows);
  },
  'analytics-cost': async () => {
    const rows = await measureAnalyticsCost(showProgress);
    printLine('\nin one process, with and without in turn; ratios with their standard errors:');
    showAnalyticsCost(rows);
  },
  checkpoints: async () => {
    const rows = await measureCheckpoints(showProgress);
    printLine('\nwith checkpoints and without, 64 connections; ratios in the same round:');
    showCheckpoints(rows);
  },
  'cluster-goals': async (seconds = GOALS_SECONDS) => {
    const rows = hasRedis ? await measureGoals(seconds, showProgress) : undefined;
    printLine('\nfive machines with one Redis, round trip 0.5-2 ms, every decision replayed:');
    if (rows === undefined) printLine('skipped: redis-server is not installed');
    else showGoals(rows);
  },
  'cluster-sliding': async () => {
    const rows = hasRedis ? await measureClusterSliding(showProgress) : undefined;
    printLine('\nused-up windows of five machines, round trip 0.5-2 ms, every decision replayed:');
    if (rows === undefined) printLine('skipped: redis-server is not installed');
    else showClusterSliding(rows);
  },
  'cluster-async': async () => {
    const rows = hasRedis ? await measureClusterAsync(showProgress) : undefined;
    printLine('\nasynchronous checks on several machines, allowed tokens in parts of the limit:');
    if (rows === undefined) printLine('skipped: redis-server is not installed');
    else showClusterAsync(rows);
  },
  'cluster-faults': async () => {
    printLine('\nfaults of three machines with all defaults, as in docs/guarantees.md:\n');
    if (hasRedis) await measureClusterFaults(printLine, showProgress);
    else printLine('skipped: redis-server is not installed');
  },
  creep: async () => {
    const rows = await measureCreep(showProgress);
    printLine('\nagainst a commit of the past; ratios to it, in the same round:');
    showCreep(rows);
  },
  fairness: async () => {
    const rows = await measureFairness(showProgress);
    printLine('\nthe slowest check of another client, in rounds of one load:');
    showFairness(rows);
  },
  holds: async () => {
    const holds = await measureHolds(showProgress);
    printLine('\nreservations and leases, one acceptor, 64 connections; ratios to a check:');
    showHolds(holds);
    return holds;
  },
  rls: async () => {
    const rows = await measureRls(showProgress);
    printLine(
      "\nEnvoy's rate limit service, one CPU for each server; ratios to weir, in the same round:",
    );
    showRls(rows);
  },
  gateway: async () => {
    const rows = hasNginx && hasWrk ? await measureGateway(showProgress) : undefined;
    printLine('\nbehind nginx; ratios to nginx without a limiter, in the same round:');
    if (rows === undefined) printLine('skipped: nginx or wrk is not installed');
    else showGateway(rows);
  },
  'rolling-restart': async (rounds = RESTART_ROUNDS) => {
    const rows = hasRedis ? await measureRollingRestarts(rounds, showProgress) : undefined;
    printLine('\nfive machines are restarted one after the other, under 2,000 checks/s:');
    if (rows === undefined) printLine('skipped: redis-server is not installed');
    else showRestarts(rows);
  },
  tail: async () => {
    if (!hasWrk) {
      printLine('\nthe tail: skipped, because wrk is not installed');
      return;
    }
    for (const { placement, rows } of await measureTail(showProgress)) {
      printLine(
        `\nthe tail, ${placement}: medians of ${TAIL_ROUNDS} rounds; of p99 also the range:`,
      );
      showTail(rows);
    }
  },
  soak: async (minutes = SOAK_MINUTES) => {
    printLine(`\n${minutes} minutes of mixed load, 64 connections:`);
    await runSoak(minutes, (minute) => printLine(formatSoakMinute(minute)));
  },
};

const isPart = (name: string): name is keyof typeof PARTS => Object.hasOwn(PARTS, name);
const isLongPart = (name: string): name is keyof typeof LONG_PARTS =>
  Object.hasOwn(LONG_PARTS, name);
/** An amount follows the name of a long part. */
const isAmount = (text: string, i: number) => {
  return /^[1-9]\d*$/.test(text) && i > 0 && isLongPart(requestedParts[i - 1]);
};

const requestedParts = process.argv.slice(2);
const unknownPart = requestedParts.find(
  (name, i) => !isPart(name) && !isLongPart(name) && !isAmount(name, i),
);
if (unknownPart !== undefined) {
  const names = [...Object.keys(PARTS), ...Object.keys(LONG_PARTS)];
  console.error(`unknown part "${unknownPart}"; the parts are ${names.join(', ')}`);
  process.exitCode = 2;
} else {
  printLine(machine);
  if (requestedParts.length === 0) await runAll();
  for (const [i, name] of requestedParts.entries()) {
    if (isPart(name)) await PARTS[name]();
    if (!isLongPart(name)) continue;
    await LONG_PARTS[name](
      isAmount(requestedParts[i + 1] ?? '', i + 1) ? Number(requestedParts[i + 1]) : undefined,
    );
  }
}
