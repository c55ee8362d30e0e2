/** A thread that decides checks on shared tables at full speed, until the benchmark stops it. */

import { parentPort, workerData } from 'node:worker_threads';
import { newDecision } from '../../src/core/decision.ts';
import { Hasher, newIdentity } from '../../src/core/hash.ts';
import { NO_BURST, RULE } from '../../src/core/window-rules.ts';
import { Counters } from '../../src/engine/memory/counters.ts';
import { HASH_KEY } from '../support/override-sets.ts';
import { BATCH, decideSubject } from './check-steps.ts';

export interface DecideTask {
  owner: number;
  tables: SharedArrayBuffer[];
  count: number;
  first: number;
  /** One int32: 0 before the start, 1 while it runs, 2 at its end. */
  phase: SharedArrayBuffer;
  /** Whether each decision is timed. */
  isTimed: boolean;
}

export interface DecideResult {
  decisions: number;
  /** The duration of each decision in us, up to TIMED_MAX decisions. */
  durationsUs: Float64Array;
}

const TIMED_MAX = 1_000_000;

const { owner, tables, count, first, phase, isTimed } = workerData as DecideTask;
const words = new Int32Array(phase);
const durationsUs = new Float64Array(isTimed ? TIMED_MAX : 0);
let decisions = 0;
const step = isTimed ? timedStep() : batchStep();
for (let i = 0; i < (2 * count) / BATCH + 200; i++) step();
decisions = 0;
parentPort!.postMessage('ready');
Atomics.wait(words, 0, 0);
while (Atomics.load(words, 0) === 1) step();
const result: DecideResult = { decisions, durationsUs: durationsUs.subarray(0, decisions) };
parentPort!.postMessage(result);

function batchStep(): () => void {
  const { run } = decideSubject('', tables, count, first, owner);
  return () => {
    run();
    decisions += BATCH;
  };
}

function timedStep(): () => void {
  const counters = new Counters(tables, owner, 'deny', () => {});
  const hasher = new Hasher(HASH_KEY);
  const state = hasher.namespace('default');
  const texts = Array.from({ length: count }, (_, i) => `user_${first + i}`);
  const identity = newIdentity();
  const decision = newDecision();
  const terms = {
    limit: Number.MAX_SAFE_INTEGER,
    durationMs: 60_000,
    cost: 1,
    rule: RULE.fixed,
    burst: NO_BURST,
  };
  return () => {
    const text = texts[decisions % count];
    const started = performance.now();
    hasher.hash(state, text, identity);
    const table = counters.tableOf(identity);
    table.decide(identity, state[0], 1_700_000_000_000, terms, true, decision);
    durationsUs[decisions++] = (performance.now() - started) * 1_000;
  };
}
