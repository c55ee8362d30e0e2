/**
 * `npm run bench`: what each step of a check costs, how decisions scale to two threads, the ring to
 * a shard worker and back, and HTTP load on weir and on two bare servers. Prints tables, and writes
 * result.json and result.svg beside this file's source.
 */

import { writeFileSync } from 'node:fs';
import { cpus } from 'node:os';
import { Bench } from 'tinybench';
import { loadChart } from './chart.ts';
import { GENERATOR } from './generator.ts';
import { type LoadResult, measureLoad, type Spread } from './load.ts';
import { measureOverrides } from './overrides.ts';
import { startRing } from './ring.ts';
import { startServers } from './servers.ts';
import { type Subject, stepSubjects } from './subjects.ts';
import { measureScaling } from './threads.ts';

interface StepResult {
  name: string;
  medianNs: number;
  p99Ns: number;
}

/** Says what is being done, over the last such line where that can be. */
function progress(what: string): void {
  if (process.stderr.isTTY) process.stderr.write(`\r\x1b[2K${what === '' ? '' : `... ${what}`}`);
  else if (what !== '') process.stderr.write(`... ${what}\n`);
}

function say(line: string): void {
  progress('');
  console.log(line);
}

async function measureSteps(subjects: readonly Subject[]): Promise<StepResult[]> {
  const bench = new Bench({ time: 400, warmupTime: 200 });
  for (const { name, run } of subjects) bench.add(name, run);
  const results: StepResult[] = [];
  bench.addEventListener('cycle', ({ task }) => {
    const subject = subjects.find(({ name }) => name === task?.name);
    const { result } = task ?? {};
    if (result?.state !== 'completed' || subject === undefined) {
      throw new Error(`${task?.name}: ${result?.state}`);
    }
    // Latencies are in ms, for all that one run does.
    const nanoseconds = (ms: number) => (ms * 1e6) / subject.count;
    const { p50, p99 } = result.latency;
    const step = { name: subject.name, medianNs: nanoseconds(p50), p99Ns: nanoseconds(p99) };
    results.push(step);
    const shown = (ns: number) => ns.toFixed(0).padStart(7);
    say(`${step.name.padEnd(40)} median ${shown(step.medianNs)} ns   p99 ${shown(step.p99Ns)} ns`);
  });
  await bench.run();
  return results;
}

function showLoad(results: readonly LoadResult[]): void {
  const ratio = ({ median, least, most }: Spread) =>
    `${median.toFixed(2)} (${least.toFixed(2)}-${most.toFixed(2)})`;
  const known = (value: number | undefined, digits: number) => value?.toFixed(digits) ?? '-';
  const table = [
    ['', 'conn', 'requests/s', 'ratio', 'p50', 'ratio', 'p99', 'p99.9', 'CPU/req', 'ratio', 'RSS'],
    ...results.map((result) => [
      result.server,
      String(result.connections),
      Math.round(result.requestsPerSecond).toLocaleString('en'),
      ratio(result.throughputRatio),
      `${result.p50} us`,
      known(result.p50Ratio?.median, 2),
      `${result.p99} us`,
      `${result.p999} us`,
      `${known(result.cpuPerRequest, 1)} us`,
      known(result.cpuRatio?.median, 2),
      `${known(result.residentMiB, 0)} MiB`,
    ]),
  ];
  const widths = table[0].map((_, column) => Math.max(...table.map((row) => row[column].length)));
  for (const row of table) {
    const cells = row.map((cell, i) =>
      i === 0 ? cell.padEnd(widths[i]) : cell.padStart(widths[i]),
    );
    say(cells.join('  '));
  }
}

const [cpu] = cpus();
const machine = `Node ${process.versions.node}, ${cpus().length} x ${cpu.model}`;
say(`${machine}\n`);
const steps = await measureSteps(stepSubjects());
const ring = startRing();
steps.push(...(await measureSteps(ring.subjects)));
await ring.stop();

say('\nhash + decide, decisions a second:');
progress('two threads');
const scaling = await measureScaling();
for (const { name, one, two } of scaling) {
  const millions = (rate: number) => `${(rate / 1e6).toFixed(1)} M`.padStart(7);
  const ratio = (two / one).toFixed(2);
  say(`${name.padEnd(40)} 1 thread ${millions(one)}   2 threads ${millions(two)}   ratio ${ratio}`);
}

const load = await measureLoad(await startServers(), progress);
say(`\nHTTP, by ${GENERATOR}; ratios to the bare server that parses, in the same round:`);
showLoad(load);

const overrides = await measureOverrides(progress);
say('\noverrides at their bounds, 100,000 exact and 10,000 with a wildcard:');
for (const { what, median, p99, unit } of overrides.figures) {
  const tail = p99 === undefined ? '' : `   p99 ${p99.toFixed(1).padStart(7)} ${unit}`;
  say(`${what.padEnd(52)} median ${median.toFixed(1).padStart(7)} ${unit}${tail}`);
}
say('\nHTTP with overrides; ratios to the server that has none, in the same round:');
showLoad(overrides.load);

const beside = (name: string) => new URL(`../../bench/${name}`, import.meta.url);
const result = { machine, generator: GENERATOR, steps, scaling, load, overrides };
writeFileSync(beside('result.json'), `${JSON.stringify(result, undefined, 2)}\n`);
writeFileSync(
  beside('result.svg'),
  loadChart(load, `${machine}, ${GENERATOR} on the same machine`),
);
say('\nbench/result.json and bench/result.svg are written');
