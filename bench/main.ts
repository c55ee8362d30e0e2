/** `npm run bench`: what each step of a check costs, and how decisions scale to two threads. */

import { cpus } from 'node:os';
import { Bench } from 'tinybench';
import { BATCH, stepSubjects } from './subjects.ts';
import { measureScaling } from './threads.ts';

const [cpu] = cpus();
console.log(`Node ${process.versions.node}, ${cpus().length} x ${cpu.model}\n`);

const bench = new Bench({ time: 400, warmupTime: 200 });
for (const { name, run } of stepSubjects()) bench.add(name, run);
bench.addEventListener('cycle', ({ task }) => {
  const { result } = task ?? {};
  if (result?.state !== 'completed') throw new Error(`${task?.name}: ${result?.state}`);
  // Latencies are in ms for a batch.
  const nanoseconds = (ms: number) => ((ms * 1e6) / BATCH).toFixed(0).padStart(6);
  const { p50, p99 } = result.latency;
  console.log(
    `${task?.name.padEnd(40)} median ${nanoseconds(p50)} ns   p99 ${nanoseconds(p99)} ns`,
  );
});
await bench.run();

console.log('\nhash + decide, decisions a second:');
for (const { name, one, two } of await measureScaling()) {
  const millions = (rate: number) => `${(rate / 1e6).toFixed(1)} M`.padStart(7);
  const ratio = (two / one).toFixed(2);
  console.log(
    `${name.padEnd(40)} 1 thread ${millions(one)}   2 threads ${millions(two)}   ratio ${ratio}`,
  );
}
