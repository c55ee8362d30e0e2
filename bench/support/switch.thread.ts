/**
 * Switches analytics, events or recent decisions on and off in an acceptor, in slots, and measures
 * each slot on its thread. See `switch-hooks.mjs`, which starts it, and `analytics-cost.ts`, which
 * reads the slots.
 *
 * Slots are at fixed times of the system clock, so that the benchmark can open dashboards in those
 * that are on. The environment variables of the process:
 *
 *   SWITCHED     the parts, separated by commas
 *   SLOT_MS      the length of a slot
 *   SETTLE_MS    its beginning, which is not measured: threads notice the switch
 *   SLOTS_FILE   gets a line of JSON for each slot
 */

import { spawnSync } from 'node:child_process';
import { appendFileSync, readFileSync, readlinkSync } from 'node:fs';
import { basename } from 'node:path';
import { CONTROL, type Control } from '../../src/shared-memory/control.ts';
import type { AcceptorStats } from '../../src/shared-memory/stats.ts';

export interface Slot {
  /** Since the Unix epoch. A slot with an even number and the next one are a pair: one is on. */
  number: number;
  isOn: boolean;
  /** Whether identifiers were counted at its end. */
  hasAnalytics: boolean;
  requests: number;
  ms: number;
  /** Nanoseconds of CPU: of all threads, and of the acceptor. */
  cpu: number;
  acceptor: number;
}

/** Neither a drift of the machine nor what it does at regular intervals favours a side. */
const ORDER = [true, false, false, true];

export function isOnIn(slot: number): boolean {
  return ORDER[slot % ORDER.length];
}

/** The acceptor has a core of its own, so that nothing moves between the cores. */
const ACCEPTOR_CORE = 0;

declare global {
  /** Read by the built code where events are switched. */
  var areEventsOff: boolean;
  /** The same for recent decisions. */
  var isRecentOff: boolean;
}

export function startSwitching({ words }: Control, stats: AcceptorStats): void {
  const { SWITCHED = '', SLOT_MS, SETTLE_MS, SLOTS_FILE = '' } = process.env;
  const parts = SWITCHED.split(',');
  const slotMs = Number(SLOT_MS);
  const thread = basename(readlinkSync('/proc/thread-self'));
  const { status } = spawnSync('taskset', ['-p', '-c', String(ACCEPTOR_CORE), thread]);
  if (status !== 0) throw new Error('taskset, which this benchmark needs, has failed');
  let hour = 0;
  const setOn = (isOn: boolean) => {
    globalThis.areEventsOff = !isOn && parts.includes('events');
    globalThis.isRecentOff = !isOn && parts.includes('recent');
    if (!parts.includes('analytics')) return;
    if (words[CONTROL.analyticsHour] !== 0) hour = words[CONTROL.analyticsHour];
    Atomics.store(words, CONTROL.analyticsHour, isOn ? hour : 0);
  };
  const read = () => {
    // This also makes the kernel account for the running thread, as the file below needs.
    const { user, system } = process.cpuUsage();
    return {
      requests: stats.latencyCounts.reduce((sum, count) => sum + count, 0),
      ms: performance.now(),
      cpu: 1_000 * (user + system),
      acceptor: Number(readFileSync('/proc/thread-self/schedstat', 'utf8').split(' ')[0]),
    };
  };
  const begin = () => {
    // A timer may be early or late.
    const number = Math.round(Date.now() / slotMs);
    const isOn = isOnIn(number);
    setOn(isOn);
    const measure = () => {
      const from = read();
      setTimeout(
        () => {
          const to = read();
          const slot: Slot = {
            number,
            isOn,
            hasAnalytics: words[CONTROL.analyticsHour] !== 0,
            requests: to.requests - from.requests,
            ms: to.ms - from.ms,
            cpu: to.cpu - from.cpu,
            acceptor: to.acceptor - from.acceptor,
          };
          appendFileSync(SLOTS_FILE, `${JSON.stringify(slot)}\n`);
          begin();
        },
        (number + 1) * slotMs - Date.now(),
      );
    };
    setTimeout(measure, Number(SETTLE_MS));
  };
  begin();
}
