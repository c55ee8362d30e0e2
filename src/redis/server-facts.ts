/** What a server says about itself, and whether weir can use it. */

import { RedisError } from './errors.ts';
import type { Session } from './session.ts';

export interface ServerFacts {
  /** As in messages: host:port. */
  server: string;
  product: 'Redis' | 'Valkey';
  version: string;
  /** Differs after each start of the server. */
  runId: string;
  isReplica: boolean;
  isClusterNode: boolean;
  /** Undefined if the server does not tell this user. */
  isPersistent: boolean | undefined;
  /** Its maxmemory-policy. Undefined if the server does not tell it. */
  evictionPolicy: string | undefined;
}

/** The oldest versions with sharded channels and with what scripts use. */
const OLDEST = { Redis: [7, 0], Valkey: [7, 2] } as const;

/** @throws RedisError, also if the server is too old or still reads its data */
export async function readServerFacts(session: Session): Promise<ServerFacts> {
  const { server } = session;
  const info = await session.send(['INFO']);
  const field = (name: string) => {
    return new RegExp(`^${name}:(.*?)\\r?$`, 'm').exec(typeof info === 'string' ? info : '')?.[1];
  };
  const runId = field('run_id');
  const role = field('role');
  const valkey = field('valkey_version');
  const version = valkey ?? field('redis_version');
  if (runId === undefined || role === undefined || version === undefined) {
    throw new RedisError('unexpectedReply', `${server}: INFO has no version, role or run id`);
  }
  const product = valkey === undefined ? 'Redis' : 'Valkey';
  requireVersion(server, product, version);
  if (field('loading') === '1') {
    throw new RedisError('loading', `${server}: the server is reading its data from disk`);
  }
  return {
    server,
    product,
    version,
    runId,
    isReplica: role !== 'master',
    isClusterNode: field('redis_mode') === 'cluster' || field('server_mode') === 'cluster',
    isPersistent: field('aof_enabled') === '1' ? true : await readHasSnapshots(session),
    evictionPolicy: field('maxmemory_policy'),
  };
}

function requireVersion(server: string, product: 'Redis' | 'Valkey', version: string): void {
  const [major, minor] = version.split('.').map(Number);
  const [oldestMajor, oldestMinor] = OLDEST[product];
  if (major > oldestMajor || (major === oldestMajor && minor >= oldestMinor)) return;
  throw new RedisError(
    'unsupported',
    `${server}: ${product} ${version} is too old: Redis 7.0 or Valkey 7.2 is required`,
  );
}

async function readHasSnapshots(session: Session): Promise<boolean | undefined> {
  try {
    const reply = await session.send(['CONFIG', 'GET', 'save']);
    const save = typeof reply === 'object' && reply !== null ? Object.values(reply).at(-1) : '';
    return save !== '';
  } catch (error) {
    // Many services refuse CONFIG.
    if (error instanceof RedisError && error.reply !== '') return undefined;
    throw error;
  }
}
