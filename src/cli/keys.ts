/**
 * `weir keys`: API keys on a running server, or, to get back in when every key is lost, a new one
 * in the data directory of a stopped one.
 */

import { existsSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { addKey, newKey } from '../api/keys.ts';
import { describe } from '../describe.ts';
import { StartError } from '../errors.ts';
import { Registry } from '../registry/registry.ts';
import { DataDirectory, STORE } from '../store/directory.ts';
import { SqliteStore } from '../store/sqlite.ts';
import { systemMs } from '../time.ts';
import {
  durationOf,
  printLine,
  readOptions,
  required,
  runSubcommand,
  type Subcommands,
} from './options.ts';
import { items, post } from './server.ts';

const DEFAULT_DATA_DIR = './weir-data';

const USAGE = `weir keys create --name <name> --permission <permission> ... [--expires <when>]
weir keys create ... --offline [--data-dir <path>]
weir keys list
weir keys revoke <keyId>

  --permission <text>     "*" for all, "ratelimit.*.limit", "ratelimit.<namespaceId>.limit",
                          "keys.create" ...; as often as there are permissions
  --expires <when>        90s, 15m, 1h, 30d from now, or a date like 2030-01-31
  --offline               on the data directory of a stopped server
  --data-dir <path>       that directory; else WEIR_DATA_DIR, else ${DEFAULT_DATA_DIR}

The key is printed this once, and kept nowhere.
`;

const SUBCOMMANDS: Subcommands = {
  create: async (args) => {
    const options = {
      name: { type: 'string' },
      permission: { type: 'string', multiple: true },
      expires: { type: 'string' },
      offline: { type: 'boolean' },
      'data-dir': { type: 'string' },
    } as const;
    const { values } = readOptions(args, options);
    const name = required('name', values.name);
    const { permission: permissions, offline = false } = values;
    if (permissions === undefined) throw new StartError('--permission is missing; see --help');
    const expires = values.expires === undefined ? undefined : timeOf(values.expires);
    const fields = { name, permissions, ...(expires === undefined ? {} : { expires }) };
    if (!offline) {
      if (values['data-dir'] !== undefined) throw new StartError('--data-dir goes with --offline');
      printLine(await post('keys.create', fields));
      return;
    }
    const path = values['data-dir'] ?? process.env.WEIR_DATA_DIR ?? DEFAULT_DATA_DIR;
    printLine(createOffline(path, fields));
  },

  list: async (args) => {
    readOptions(args, {});
    for await (const key of items('keys.list', 'keys')) printLine(key);
  },

  revoke: async (args) => {
    const { positionals } = readOptions(args, {}, ['keyId']);
    printLine(await post('keys.revoke', { keyId: positionals[0] }));
  },
};

/** @returns the exit code */
export function keys(args: readonly string[]): Promise<number> {
  return runSubcommand('keys', SUBCOMMANDS, USAGE, args);
}

/** Whoever may write to the directory may do everything anyway. */
function createOffline(path: string, fields: object): object {
  const { key, record } = newKey(fields, systemMs());
  if (!existsSync(join(path, STORE))) {
    throw new StartError(
      `${resolve(path)} holds no store of weir: name its data directory by --data-dir`,
    );
  }
  const directory = DataDirectory.open(path);
  const store = SqliteStore.open(directory);
  const registry = new Registry(store);
  addKey(registry, record);
  registry.settle(store);
  store.close();
  directory.close();
  return { keyId: record.id, key };
}

function timeOf(text: string): number {
  if (!/^\d{4}-/.test(text)) return systemMs() + durationOf('expires', text);
  const [, year, month] = /^(\d{4})-(\d\d)-\d\d(T[\d:.]+Z)?$/.exec(text) ?? [];
  const date = year === undefined ? Number.NaN : Date.parse(text);
  // A day that a month has not is taken for one of the next.
  if (date < Date.UTC(Number(year), Number(month), 1)) return date;
  throw new StartError(`--expires must be a date like 2030-01-31, got ${describe(text)}`);
}
