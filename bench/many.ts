/**
 * Many checks in one request: what a check costs by itself, in both versions of the API, and among
 * 10 and 100 in a request; beside a bare server that parses the largest of these requests and
 * answers a constant, which is what there is to lose.
 */

import { CHECK_V2, manyChecks } from './generator.ts';
import { measureLoad } from './load.ts';
import { bare, type Server, weir } from './servers.ts';

const CONNECTIONS = 64;
const MOST = 100;

export interface ManyResult {
  what: string;
  requestsPerSecond: number;
  checksPerSecond: number;
  /** us, all threads of the server, user and system. */
  cpuPerCheck: number | undefined;
  /** us */
  p50: number;
  p99: number;
}

export async function measureMany(progress: (what: string) => void): Promise<ManyResult[]> {
  const of = (name: string, checks: number, server: Promise<Server>) => ({ name, checks, server });
  const many = (count: number) => {
    const name = `${count} in a request`;
    return of(name, count, weir(name, 'in-place', { workload: manyChecks(count) }));
  };
  const cases = [
    of('v1, one', 1, weir('v1, one')),
    of('v2, one', 1, weir('v2, one', 'in-place', { workload: CHECK_V2 })),
    ...[1, 10, MOST].map(many),
    of('bare, parses 100', MOST, bare('bare, parses 100', 'parse', { workload: manyChecks(MOST) })),
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
