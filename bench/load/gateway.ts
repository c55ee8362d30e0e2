/**
 * The cost of a limiter behind nginx: the configuration that weir prints, the same without a
 * limiter, and the same with nginx's `limit_req`. All are in front of one application, an nginx
 * with a constant response. No request is denied. The same rounds also measure weir without nginx.
 */

import { chmodSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { nginx as printed } from '../../src/commands/gateways/nginx.ts';
import { everyPath, type WeirAddress } from '../../src/commands/gateways/setup.ts';
import { POLICY_DEFAULTS, type Policy } from '../../src/policies/policy.ts';
import { runGetLoad } from '../support/load-generator.ts';
import { startNginx } from '../support/nginx.ts';
import { type ContestantFigures, measureAlternating } from '../support/rounds.ts';
import { freePort, startWeir } from '../support/servers.ts';

const ROUNDS = 7;
const SECONDS = 2;
const CONNECTIONS = [1, 64];
const HOST = '127.0.0.1';

export interface GatewayRow extends ContestantFigures {
  what: string;
  connections: number;
}

/** With `deny` a timeout becomes a denial, and thereby an error of the measurement. */
const POLICY: Policy = {
  namespace: 'bench',
  gateway: 'nginx',
  windows: [{ limit: 1_000_000_000, duration: 60_000 }],
  identify: ['ip'],
  ...POLICY_DEFAULTS,
  onError: 'deny',
};

const applicationConfiguration = (_: string, port: number) => `
worker_processes 1;
pid nginx.pid;
events { worker_connections 1024; }
http {
  access_log off;
  keepalive_requests 1000000000;
  server { listen ${HOST}:${port}; location / { return 200 'ok'; } }
}
`;

export async function measureGateway(progress: (what: string) => void): Promise<GatewayRow[]> {
  const directory = mkdtempSync(join(tmpdir(), 'weir-bench-'));
  const stops: (() => Promise<void>)[] = [];
  const started = async <T extends { stop: () => Promise<void> }>(starting: Promise<T>) => {
    const server = await starting;
    stops.push(server.stop);
    return server;
  };
  try {
    const config = join(directory, 'weir.json');
    const { namespace, ...policy } = POLICY;
    writeFileSync(config, JSON.stringify({ policies: { [namespace]: policy } }));
    const gatewayPort = await freePort();
    const socket = join(directory, 'weir.sock');
    // nginx may serve as another user than the one that starts it.
    chmodSync(directory, 0o755);
    const sockets = ['--gateway-socket', socket, '--gateway-socket-mode', '0666'];
    const args = ['--config', config, '--gateway-port', String(gatewayPort), ...sockets];
    const limiter = await started(startWeir('weir', 'in-place', { args }));
    const application = await started(startNginx(applicationConfiguration));
    const atPort = { host: HOST, port: gatewayPort, needsKey: false };
    const text = (port: number, at: WeirAddress = atPort) => {
      const upstream = { host: HOST, ...application };
      const listen = { host: HOST, port };
      return printed({ routes: everyPath(POLICY), weir: at, listen, upstream });
    };
    const noLimiter = await started(startNginx((_, port) => removeWeir(text(port))));
    const limitReq = await started(startNginx((_, port) => useLimitReq(text(port))));
    const overTcp = await started(startNginx((_, port) => text(port)));
    const overUnix = await started(startNginx((_, port) => text(port, { socket })));

    const contestant = (name: string, port: number, pids: readonly number[], path = '/') => {
      const headers = { 'X-Forwarded-For': '192.0.2.1' };
      return (connections: number) => ({
        name,
        pids,
        run: () => runGetLoad({ port, connections, seconds: SECONDS }, path, headers),
      });
    };
    const contestants = [
      contestant('nginx, no limiter', noLimiter.port, noLimiter.pids),
      contestant('nginx, limit_req', limitReq.port, limitReq.pids),
      contestant('nginx, weir', overTcp.port, [...overTcp.pids, ...limiter.pids]),
      contestant('nginx, weir, Unix', overUnix.port, [...overUnix.pids, ...limiter.pids]),
      contestant('weir alone', gatewayPort, limiter.pids, `/v1/check/${namespace}`),
    ];
    const rows: GatewayRow[] = [];
    for (const connections of CONNECTIONS) {
      const now = contestants.map((make) => make(connections));
      for (const { run } of now) await run();
      const figures = await measureAlternating(now, ROUNDS, (what) => {
        progress(`gateway: ${connections} connections, ${what}`);
      });
      rows.push(...figures.map((found, i) => ({ what: now[i].name, connections, ...found })));
    }
    return rows;
  } finally {
    for (const stop of stops.reverse()) await stop();
    rmSync(directory, { recursive: true, force: true });
  }
}

const AUTH_REQUEST_LINE = 'auth_request /_weir;';

/** Removes the check from a configuration, and the headers that come from its response. */
function removeWeir(text: string, replacement = ''): string {
  if (!text.includes(AUTH_REQUEST_LINE)) throw new Error('the configuration has no check');
  return text.replace(AUTH_REQUEST_LINE, replacement).replaceAll(/^ *add_header .*\n/gm, '');
}

function useLimitReq(text: string): string {
  const zone = 'limit_req_zone $binary_remote_addr zone=own:16m rate=1000000r/s;\n';
  const limit = 'limit_req zone=own burst=1000000 nodelay;';
  return removeWeir(text, limit).replace('  server {\n', `  ${zone}  server {\n`);
}
