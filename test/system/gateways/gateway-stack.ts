/** A weir with policies, an application, and the gateways between them, for a block of tests. */

import { chmodSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll } from 'vitest';
import {
  everyPath,
  type GatewaySetup,
  type Route,
  type Upstream,
  type WeirAddress,
} from '../../../src/commands/gateways/setup.ts';
import type { Gateway as GatewayName } from '../../../src/policies/gateways.ts';
import { type Policy, readPolicies } from '../../../src/policies/policy.ts';
import { configText, type PolicySettings, writeConfig } from '../../support/policy-config.ts';
import {
  freePort,
  removeDirectory,
  type ServerProcess,
  startServer,
  temporaryDirectory,
  waitUntil,
} from '../../support/server.ts';
import {
  type Application,
  agentFromNewAddress,
  type Gateway,
  newKey,
  sendThrough,
  startApplication,
} from './gateway-process.ts';
import type { TestedGateway } from './real-gateways.ts';

export const atPort = (port: number, needsKey = false): WeirAddress => {
  return { host: '127.0.0.1', port, needsKey };
};

interface ServeOptions {
  /** Where the gateway sends checks; by default the listener that needs no key. */
  weir?: WeirAddress;
  key?: string;
  upstream?: Upstream;
  /** The address on which the gateway serves clients. */
  host?: string;
  /** Changes the printed text. */
  edit?: (text: string, setup: GatewaySetup) => string;
  /** Prints another form of the configuration. */
  print?: (setup: GatewaySetup) => string;
}

/** A namespace whose policy protects all paths, or namespaces with the prefixes of their paths. */
export type Routes = string | Record<string, string> | Route[];

class GatewayStack<Started extends Gateway = Gateway> {
  readonly directory = temporaryDirectory();
  readonly socket = join(this.directory, 'weir socket');
  readonly policies: Map<string, Policy>;
  readonly gateways: Started[] = [];
  /** Ends what a test has started, the last first. */
  readonly stops: (() => unknown)[] = [];
  readonly #gateway: TestedGateway<GatewayName, Started>;
  readonly #settings: Record<string, PolicySettings>;
  application!: Application;
  weir!: ServerProcess;
  gatewayPort = 0;

  constructor(
    gateway: TestedGateway<GatewayName, Started>,
    settings: Record<string, PolicySettings>,
  ) {
    this.#gateway = gateway;
    this.#settings = Object.fromEntries(
      Object.entries(settings).map(([namespace, policy]) => {
        return [namespace, { gateway: gateway.name, ...policy }];
      }),
    );
    const read = readPolicies(JSON.parse(configText(this.#settings)).policies);
    this.policies = new Map(read.map((policy) => [policy.namespace, policy]));
  }

  async start(): Promise<void> {
    // Some gateways run as another user than the one that starts them.
    chmodSync(this.directory, 0o755);
    this.gatewayPort = await freePort();
    this.application = await startApplication({ returnsQuota: this.#gateway.name === 'traefik' });
    this.stops.push(this.application.stop);
    const socket = ['--gateway-socket', this.socket, '--gateway-socket-mode', '0666'];
    this.weir = await this.startWeir(this.gatewayPort, 'data', socket);
  }

  async startWeir(port: number, name: string, more: string[] = []): Promise<ServerProcess> {
    const config = ['--config', writeConfig(this.directory, this.#settings)];
    const sizes = ['--acceptors', '1', '--workers', '1', '--counters', '16384'];
    const args = [...config, '--gateway-port', String(port), ...sizes, ...more];
    const server = await startServer(join(this.directory, name), { args });
    this.stops.push(() => {
      // A failed test may leave it stopped.
      server.child.kill('SIGCONT');
      return server.stop();
    });
    return server;
  }

  async setupOf(routes: Routes, options: ServeOptions = {}): Promise<GatewaySetup> {
    const { weir, upstream, host = '127.0.0.1' } = options;
    const port = await freePort();
    // HAProxy also uses the next port.
    await freePort();
    return {
      routes: Array.isArray(routes) ? routes : this.#routesOf(routes),
      weir: weir ?? atPort(this.gatewayPort),
      listen: { host, port },
      upstream: upstream ?? { host: '127.0.0.1', port: this.application.port },
    };
  }

  #routesOf(prefixes: string | Record<string, string>): Route[] {
    if (typeof prefixes === 'string') return everyPath(this.policies.get(prefixes)!);
    return Object.entries(prefixes).map(([namespace, prefix]) => {
      return { policy: this.policies.get(namespace)!, prefix };
    });
  }

  /** Starts a gateway with the printed configuration. */
  async serve(routes: Routes, options: ServeOptions = {}): Promise<Started> {
    const { print = this.#gateway.print, edit = (text) => text, key = '' } = options;
    const setup = await this.setupOf(routes, options);
    const gateway = await this.#gateway.start(edit(print(setup), setup), setup.listen.port, key);
    this.gateways.push(gateway);
    this.stops.push(gateway.stop);
    return gateway;
  }

  /** Waits for a first check in time: a new process may be too slow for the gateway's timeout. */
  firstResponse({ port }: Gateway, path = '/'): Promise<void> {
    return waitUntil('weir responds in time', async () => {
      const request = { path, headers: newKey() };
      const { headers } = await sendThrough(port, request, agentFromNewAddress());
      return headers.ratelimit !== undefined;
    });
  }

  async stop(): Promise<void> {
    for (const stop of this.stops.splice(0).reverse()) await stop();
    removeDirectory(this.directory);
  }
}

/**
 * Call it where tests are described: the stack exists while the tests of the block run.
 * @param settings by namespace; the defaults are this gateway, its address, and the longest window
 */
export function useGatewayStack<Started extends Gateway>(
  gateway: TestedGateway<GatewayName, Started>,
  settings: Record<string, PolicySettings>,
): GatewayStack<Started> {
  const stack = new GatewayStack(gateway, settings);
  beforeAll(() => stack.start());
  afterAll(() => stack.stop());
  return stack;
}
