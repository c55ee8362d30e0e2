/** `weir migrate`: moves the records of a stopped server into Redis. */

import { existsSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { StartError } from '../core/errors.ts';
import { type MigrationResult, migrate as migrateStore } from '../registry/shared/migration.ts';
import { DataDirectory, STORE_FILE } from '../registry/store/directory.ts';
import { TABLE_NAMES, TABLES } from '../registry/store/schema.ts';
import { SqliteStore } from '../registry/store/sqlite.ts';
import { type Command, subcommand } from './command.ts';
import { formatCount } from './output.ts';
import { CONFIG_OPTION, REDIS_EXIT_CODES, REDIS_EXIT_MEANINGS, withRedis } from './redis.ts';

const move = subcommand({
  usage: '[--data-dir <path>] [--dry-run]',
  needsServer: false,
  options: {
    'data-dir': {
      type: 'string',
      value: '<path>',
      help: 'the data directory of a stopped server; default: WEIR_DATA_DIR, else ./weir-data',
    },
    'dry-run': { type: 'boolean', help: 'change nothing, and print what would be moved' },
    ...CONFIG_OPTION,
  },
  run: async (call) => {
    const { config, 'data-dir': dataDir, 'dry-run': isDryRun = false } = call.values;
    const flags = [
      ...(config === undefined ? [] : [`--config=${config}`]),
      ...(dataDir === undefined ? [] : [`--data-dir=${dataDir}`]),
    ];
    const result = await withRedis(flags, ({ settings, registry }) => {
      return withStore(settings.dataDir, (store) => migrateStore(store, registry, isDryRun));
    });
    call.print(result, () => describe(result));
    return undefined;
  },
});

async function withStore<T>(path: string, work: (store: SqliteStore) => Promise<T>): Promise<T> {
  if (!existsSync(join(path, STORE_FILE))) {
    throw new StartError(
      `--data-dir must be the data directory of a server; ${resolve(path)} has no ${STORE_FILE}`,
    );
  }
  // SQLite creates files with the modes that the umask leaves.
  process.umask(0o077);
  const directory = DataDirectory.open(path);
  try {
    const store = SqliteStore.open(directory);
    try {
      return await work(store);
    } finally {
      store.close();
    }
  } finally {
    directory.close();
  }
}

const OUTCOMES: Readonly<Record<MigrationResult['status'], string>> = {
  moved: 'Redis now has the records of this store',
  present: 'Redis has the registry of this store already; nothing was changed there',
  possible: 'nothing was changed; without --dry-run Redis gets the records of this store',
};

function describe({ status, records }: MigrationResult): string {
  const counts = TABLE_NAMES.flatMap((table) => {
    const { nouns } = TABLES[table];
    return nouns === undefined ? [] : [formatCount(records[table], ...nouns)];
  });
  return `${OUTCOMES[status]}: ${counts.join(', ')}.`;
}

export const migrate: Command = {
  subcommands: { '': move },
  notes: `
Moves keys, namespaces, overrides and the audit log from the store in a data directory into Redis,
for WEIR_ENGINE=redis. Redis must not have a registry of another store. The store stays: it is then
a replica. Counters are not moved: windows begin anew. WEIR_ENGINE=redis and WEIR_REDIS_URL must be
set as for the server, which must be stopped.
`,
  examples: ['weir migrate --dry-run', 'weir migrate --data-dir /var/lib/weir'],
  exitCodes: REDIS_EXIT_CODES,
  exitMeanings: REDIS_EXIT_MEANINGS,
};
