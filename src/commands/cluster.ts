/** `weir cluster`: the machines that share a Redis, as Redis knows them. */

import { formatAge } from '../core/duration.ts';
import { StartError } from '../core/errors.ts';
import { KeySpace } from '../engine/redis/scripts/keys.ts';
import {
  decodeForgetMembers,
  decodeListMembers,
  encodeForgetMembers,
  encodeListMembers,
  forgetMembers,
  type ListedMember,
  listMembers,
} from '../engine/redis/scripts/members.ts';
import type { ScriptContext } from '../engine/redis/scripts/reply.ts';
import type { RedisSettings } from '../redis/settings.ts';
import { parseRedisUrl } from '../redis/url.ts';
import type { MachineReport } from '../registry/shared/client.ts';
import { type Command, subcommand } from './command.ts';
import { formatCell } from './output.ts';
import {
  CONFIG_OPTION,
  REDIS_DEADLINE_MS,
  REDIS_EXIT_CODES,
  REDIS_EXIT_MEANINGS,
  type RedisAccess,
  withRedis,
} from './redis.ts';

type State = 'joined' | 'joining' | 'awaited' | 'stopped' | 'no counters';

/** What Redis knows of one machine. A field is undefined where the machine has not reported it. */
interface Machine {
  machine: string;
  host: string | undefined;
  pid: number | undefined;
  weir: string | undefined;
  /** Of its replica of the registry. */
  version: number | undefined;
  /** Versions of the registry that it does not have yet. */
  lag: number | undefined;
  /** How long ago its last message was. */
  lastContactMs: number;
  state: State;
  /** Shard workers that Redis grants tokens in all buckets of counters, and all workers. */
  joined: number;
  members: number;
  /** Leases with unspent tokens, and these tokens, as it counts them every 10 s. */
  leases: number | undefined;
  tokens: number | undefined;
  /** Leases since its start. */
  granted: number | undefined;
  returned: number | undefined;
}

const flagsOf = ({ config }: { config?: string }) => {
  return config === undefined ? [] : [`--config=${config}`];
};

const status = subcommand({
  usage: '',
  needsServer: false,
  options: CONFIG_OPTION,
  run: async (call) => {
    const machines = await withRedis(flagsOf(call.values), readMachines);
    const header = [
      ...['MACHINE', 'HOST', 'PID', 'WEIR', 'VERSION', 'LAG', 'LAST CONTACT', 'STATE'],
      ...['LEASES', 'TOKENS', 'GRANTED', 'RETURNED'],
    ];
    const items = (async function* () {
      yield* machines;
    })();
    await call.printList(items, header, machineRow);
    return undefined;
  },
});

const forget = subcommand({
  usage: '<machine>',
  argumentNames: ['machine'],
  needsServer: false,
  options: CONFIG_OPTION,
  run: async (call) => {
    const [machine] = call.positionals;
    if (!/^[0-9a-f]{16}$/.test(machine)) {
      throw new StartError('<machine> must be an id as weir cluster status prints it');
    }
    const members = await withRedis(flagsOf(call.values), (access) => forgetIn(access, machine));
    call.print({ machine, members }, () => `Machine ${machine} is forgotten.`);
    return undefined;
  },
});

function contextOf({ redisUrl, redisPrefix, recovery }: RedisSettings): ScriptContext {
  const keys = new KeySpace(redisPrefix, parseRedisUrl(redisUrl).kind === 'cluster');
  return { keys, isAvailable: recovery === 'available' };
}

async function readMachines(access: RedisAccess): Promise<Machine[]> {
  const members = await readMembers(access);
  const { registry } = access;
  const reply = await registry.read(undefined);
  const version = reply.status === 'empty' ? 0 : reply.head.version;
  const reports = await registry.machines();
  const ids = [
    ...reports.map(({ machine }) => machine),
    ...members.map(({ member }) => machineOf(member)),
  ];
  return [...new Set(ids)].map((id) => {
    const report = reports.find(({ machine }) => machine === id);
    const own = members.filter(({ member }) => machineOf(member) === id);
    return describeMachine(id, report, own, version);
  });
}

/** The members of all buckets, which are on different servers of a Redis Cluster. */
async function readMembers({ settings, link }: RedisAccess): Promise<ListedMember[]> {
  const context = contextOf(settings.redis);
  const buckets = Array.from({ length: context.keys.bucketCount }, async (_, bucket) => {
    const { keys, args } = encodeListMembers(context, bucket);
    return decodeListMembers(await link.call(listMembers, keys, args, REDIS_DEADLINE_MS)).members;
  });
  const lists = await Promise.all(buckets);
  const names = new Set(lists.flatMap((list) => list.map(({ member }) => member)));
  return [...names].map((member) => {
    const own = lists.flatMap((list) => list.filter((listed) => listed.member === member));
    return {
      member,
      silentMs: Math.min(...own.map(({ silentMs }) => silentMs)),
      hasJoined: own.length === lists.length && own.every(({ hasJoined }) => hasJoined),
      acknowledged: Math.min(...own.map(({ acknowledged }) => acknowledged)),
      isAwaited: own.some(({ isAwaited }) => isAwaited),
    };
  });
}

function describeMachine(
  machine: string,
  report: MachineReport | undefined,
  members: readonly ListedMember[],
  registryVersion: number,
): Machine {
  const fields = readReport(report);
  const text = (name: string) => {
    const value = fields[name];
    return typeof value === 'string' ? value : undefined;
  };
  const number = (name: string) => {
    const value = fields[name];
    return typeof value === 'number' ? value : undefined;
  };
  const version = number('version');
  const contacts = members.map(({ silentMs }) => silentMs);
  const joined = members.filter(({ hasJoined }) => hasJoined).length;
  // It counted its leases before it returned them.
  const held = (name: string) => (fields.isStopped === true ? undefined : number(name));
  return {
    machine,
    host: text('host'),
    pid: number('pid'),
    weir: text('weir'),
    version,
    lag: version === undefined ? undefined : Math.max(0, registryVersion - version),
    lastContactMs: Math.min(...contacts, report?.silentMs ?? Number.POSITIVE_INFINITY),
    state: stateOf(members, joined, fields.isStopped === true),
    joined,
    members: members.length,
    leases: held('leasesHeld'),
    tokens: held('tokensHeld'),
    granted: number('leasesGranted'),
    returned: number('leasesReturned'),
  };
}

function stateOf(members: readonly ListedMember[], joined: number, isStopped: boolean): State {
  if (members.some(({ isAwaited }) => isAwaited)) return 'awaited';
  if (isStopped) return 'stopped';
  if (members.length === 0) return 'no counters';
  return joined === members.length ? 'joined' : 'joining';
}

/** @returns no fields for a report of an unknown form, for example of a later version */
function readReport(report: MachineReport | undefined): Readonly<Record<string, unknown>> {
  try {
    const fields: unknown = JSON.parse(report?.text ?? '{}');
    return typeof fields === 'object' && fields !== null ? { ...fields } : {};
  } catch {
    return {};
  }
}

function machineRow(machine: Machine): string[] {
  const cell = (value: string | number | undefined) => {
    return value === undefined ? '-' : formatCell(String(value));
  };
  const { host, pid, weir, version, lag, lastContactMs, state, joined, members } = machine;
  const { leases, tokens, granted, returned } = machine;
  return [
    machine.machine,
    ...[host, pid, weir, version, lag].map(cell),
    `${formatAge(lastContactMs)} ago`,
    state === 'joining' ? `joining ${joined}/${members}` : state,
    ...[leases, tokens, granted, returned].map(cell),
  ];
}

async function forgetIn({ settings, link, registry }: RedisAccess, machine: string) {
  const context = contextOf(settings.redis);
  let members = 0;
  for (let bucket = 0; bucket < context.keys.bucketCount; bucket++) {
    const { keys, args } = encodeForgetMembers(context, bucket, machine);
    members = Math.max(
      members,
      decodeForgetMembers(await link.call(forgetMembers, keys, args, REDIS_DEADLINE_MS)),
    );
  }
  const isListed = await registry.forget(machine);
  if (members > 0 || isListed) return members;
  throw new StartError(`Redis knows no machine ${machine}; weir cluster status lists them`);
}

/** The member `<machine>.<shard worker>`. */
function machineOf(member: string): string {
  return member.split('.')[0];
}

export const cluster: Command = {
  subcommands: { status, forget },
  notes: `
status lists the machines that share a Redis: the version of the registry that each has, how many
versions it lags behind, and its last contact. STATE: joined (Redis grants it tokens), joining,
stopped (it has returned its leases), or awaited (it has not reported its counters, which Redis had
lost). LEASES and TOKENS: the leases that it holds, and their unspent tokens, counted every 10 s.
GRANTED and RETURNED: leases since its start. --json has lastContactMs, and joined of members.

forget removes a machine that is lost for good: nothing waits for it any longer. Its leases stay
deducted until their windows end. A machine that still runs joins again.

WEIR_ENGINE=redis and WEIR_REDIS_URL must be set as for the servers, which need not run.
`,
  examples: ['weir cluster status --json', 'weir cluster forget 6f1c0a52d3b98e47'],
  exitCodes: REDIS_EXIT_CODES,
  exitMeanings: REDIS_EXIT_MEANINGS,
};
