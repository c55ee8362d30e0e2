/**
 * Minutes of mixed load on 64 connections: allowed and denied checks of both versions, asynchronous
 * checks and batches, alternately. A leak shows as a steady growth of memory or descriptors.
 */

import { readdirSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import {
  ASYNC_WORKLOAD,
  batchWorkload,
  CHECK_V2_WORKLOAD,
  CHECK_WORKLOAD,
  DENIED_WORKLOAD,
  runLoad,
} from '../support/load-generator.ts';
import { residentBytes, startWeir } from '../support/servers.ts';

const CONNECTIONS = 64;
const MINUTE_S = 60;

export const SOAK_MINUTES = 10;

export interface SoakMinute {
  minute: number;
  requestsPerSecond: number;
  /** us */
  p50: number;
  p99: number;
  residentMiB: number;
  descriptors: number;
}

export async function runSoak(
  minutes: number,
  onMinute: (minute: SoakMinute) => void,
): Promise<SoakMinute[]> {
  const server = await startWeir('weir');
  const pid = server.process.pid ?? 0;
  try {
    const results: SoakMinute[] = [];
    for (let minute = 1; minute <= minutes; minute++) {
      const loaded = runLoad({
        port: server.port,
        connections: CONNECTIONS,
        seconds: MINUTE_S,
        workload: CHECK_WORKLOAD,
        alternating: [CHECK_V2_WORKLOAD, ASYNC_WORKLOAD, DENIED_WORKLOAD, batchWorkload(10)],
      });
      // Measured while the connections of the load are open.
      await sleep((MINUTE_S - 1) * 1e3);
      const residentMiB = (residentBytes(pid) ?? 0) / 2 ** 20;
      const descriptors = openDescriptors(pid);
      const { requests, seconds, p50, p99, errors } = await loaded;
      if (errors > 0) throw new Error(`${errors} errors in minute ${minute}`);
      const requestsPerSecond = requests / seconds;
      const result = { minute, requestsPerSecond, p50, p99, residentMiB, descriptors };
      results.push(result);
      onMinute(result);
    }
    return results;
  } finally {
    await server.stop();
  }
}

/** 0 if there is no /proc. */
function openDescriptors(pid: number): number {
  try {
    return readdirSync(`/proc/${pid}/fd`).length;
  } catch {
    return 0;
  }
}
