/**
 * The cost of a check alone, in both versions of the API, and in batches of 10 and 100. The
 * baseline is a bare server that parses the largest of these requests and sends a constant
 * response.
 */

import { batchWorkload, CHECK_V2_WORKLOAD } from '../support/load-generator.ts';
import { type BenchServer, startBareServer, startWeir } from '../support/servers.ts';
import { measureLoad } from './http-load.ts';

const CONNECTIONS = 64;
const MAX_CHECKS = 100;

export interface BatchResult {
  what: string;
  requestsPerSecond: number;
  checksPerSecond: number;
  /** us, all threads of the server, user and system. */
  cpuPerCheck: number | undefined;
  /** us */
  p50: number;
  p99: number;
}

export async function measureBatches(progress: (what: string) => void): Promise<BatchResult[]> {
  const batchCase = (name: string, checks: number, server: Promise<BenchServer>) => ({
    name,
    checks,
    server,
  });
  const many = (count: number) => {
    const name = `${count} in a request`;
    return batchCase(name, count, startWeir(name, 'in-place', { workload: batchWorkload(count) }));
  };
  const cases = [
    batchCase('v1, one', 1, startWeir('v1, one')),
    batchCase('v2, one', 1, startWeir('v2, one', 'in-place', { workload: CHECK_V2_WORKLOAD })),
    ...[1, 10, MAX_CHECKS].map(many),
    batchCase(
      'bare, parses 100',
      MAX_CHECKS,
      startBareServer('bare, parses 100', 'parse', { workload: batchWorkload(MAX_CHECKS) }),
    ),
  ];
  const servers = await Promise.all(cases.map(({ server }) => server));
  const results = await measureLoad(servers, progress, [CONNECTIONS]);
  return results.map(({ requestsPerSecond, cpuPerRequest, p50, p99 }, i) => {
    const { name, checks } = cases[i];
    return {
      what: name,
      requestsPerSecond,
      checksPerSecond: requestsPerSecond * checks,
      cpuPerCheck: cpuPerRequest === undefined ? undefined : cpuPerRequest / checks,
      p50,
      p99,
    };
  });
}
