/**
 * A weir with the rate limit service, an application, and real Envoys between them, for a block of
 * tests. One Envoy can have several printed configurations, each as a listener.
 */

import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll } from 'vitest';
import { parse, stringify } from 'yaml';
import { envoyRls } from '../../../src/commands/gateways/envoy-rls.ts';
import type { RlsSetup } from '../../../src/commands/gateways/setup.ts';
import { rulesIn } from '../../support/rls/printed-rules.ts';
import {
  freePort,
  removeDirectory,
  type ServerProcess,
  startServer,
  temporaryDirectory,
} from '../../support/server.ts';
import { type Application, type GatewayProcess, startApplication } from './gateway-process.ts';
import type { RealGateway } from './real-gateways.ts';

const HOST = '127.0.0.1';

/** A YAML document in Envoy's schema. Tests edit it by paths that they know. */
export type EnvoyConfig = ReturnType<typeof parse>;

/** The printed rules for a domain, with other limits, in the longest window. */
export function printedRules(domain: string, limit: number, limitOfAll = 1_000): string {
  const setup = { domain, service: { socket: '' }, onError: 'allow' } as const;
  const unused = { host: HOST, port: 1 };
  return rulesIn(envoyRls({ ...setup, listen: unused, upstream: unused }))
    .replaceAll(/(?<= )unit: \w+/g, 'unit: year')
    .replace('requests_per_unit: 100\n', `requests_per_unit: ${limit}\n`)
    .replace('requests_per_unit: 1000\n', `requests_per_unit: ${limitOfAll}\n`);
}

export class RlsStack {
  readonly directory = temporaryDirectory();
  readonly socket = join(this.directory, 'rls.sock');
  readonly #envoy: RealGateway;
  readonly #rules: Record<string, string>;
  readonly #env: Record<string, string>;
  /** Ends what a test has started, the last first. */
  readonly #stops: (() => unknown)[] = [];
  application!: Application;
  weir!: ServerProcess;
  rlsPort = 0;

  constructor(envoy: RealGateway, rules: Record<string, string>, env: Record<string, string>) {
    this.#envoy = envoy;
    this.#rules = rules;
    this.#env = env;
  }

  async start(): Promise<void> {
    const folder = join(this.directory, 'rules');
    mkdirSync(folder);
    for (const [name, text] of Object.entries(this.#rules)) {
      writeFileSync(join(folder, `${name}.yaml`), text);
    }
    this.rlsPort = await freePort();
    this.application = await startApplication();
    this.#stops.push(this.application.stop);
    await this.startWeir();
  }

  /** Starts weir, or starts it again with the same ports and counters. */
  async startWeir(): Promise<void> {
    const sizes = ['--acceptors', '1', '--workers', '1', '--counters', '16384'];
    const service = {
      WEIR_RLS_PORT: String(this.rlsPort),
      WEIR_RLS_SOCKET: this.socket,
      WEIR_RLS_CONFIG: join(this.directory, 'rules'),
    };
    const env = { ...service, ...this.#env };
    const server = await startServer(join(this.directory, 'data'), { args: sizes, env });
    this.#stops.push(() => {
      // A failed test may leave it stopped.
      server.child.kill('SIGCONT');
      return server.stop();
    });
    this.weir = server;
  }

  /** The printed configuration for a domain. */
  async printed(domain: string, parts: Partial<RlsSetup> = {}): Promise<EnvoyConfig> {
    const setup: RlsSetup = {
      domain,
      service: { host: HOST, port: this.rlsPort },
      onError: 'allow',
      listen: { host: HOST, port: await freePort() },
      upstream: { host: HOST, port: this.application.port },
      ...parts,
    };
    return parse(envoyRls(setup));
  }

  /**
   * Starts an Envoy with a listener for each configuration, and with the clusters of the first.
   * @returns the ports of the listeners
   */
  async serve(...configs: EnvoyConfig[]): Promise<number[]> {
    const [{ static_resources: first }] = configs;
    const listeners = configs.flatMap(({ static_resources }, i) => {
      const [listener] = static_resources.listeners;
      return { ...listener, name: `clients-${i}` };
    });
    const ports = listeners.map(({ address }) => address.socket_address.port_value);
    const text = stringify({ static_resources: { ...first, listeners } });
    const gateway: GatewayProcess = await this.#envoy.start(text, ports[0], '');
    this.#stops.push(gateway.stop);
    return ports;
  }

  async stop(): Promise<void> {
    for (const stop of this.#stops.splice(0).reverse()) await stop();
    removeDirectory(this.directory);
  }
}

/** The HttpConnectionManager of a configuration. */
export function managerOf({ static_resources }: EnvoyConfig): EnvoyConfig {
  return static_resources.listeners[0].filter_chains[0].filters.at(-1).typed_config;
}

/** The ratelimit filter of a configuration. */
export function filterOf(config: EnvoyConfig): EnvoyConfig {
  const { http_filters } = managerOf(config);
  const name = 'envoy.filters.http.ratelimit';
  return http_filters.find((filter: EnvoyConfig) => filter.name === name).typed_config;
}

/**
 * Call it where tests are described: the stack exists while the tests of the block run.
 * @param rules the files of rules by domain
 */
export function useRlsStack(
  envoy: RealGateway,
  rules: Record<string, string>,
  env: Record<string, string> = {},
): RlsStack {
  const stack = new RlsStack(envoy, rules, env);
  beforeAll(() => stack.start());
  afterAll(() => stack.stop());
  return stack;
}
