/** The backup of a running server by the command line of SQLite, as docs/operations.md shows it. */

import { spawnSync } from 'node:child_process';
import { copyFileSync, mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { useDataDirectory } from '../../support/data-directory.ts';
import { callOperationOk } from '../../support/operations.ts';
import { isMissing } from '../../support/programs/program.ts';

const own = useDataDirectory(['--counters', '1024']);

test.skipIf(isMissing('sqlite3', '--version'))(
  'a copy that SQLite makes of a running store has its records',
  async () => {
    const server = await own.start();
    const set = (identifier: string) => {
      const limits = { limit: 100, duration: 60_000 };
      const fields = { namespaceName: 'default', identifier, ...limits };
      return callOperationOk(server.port, 'ratelimits.setOverride', fields);
    };
    await set('before_*');
    const copy = join(own.dataDir, 'copy.db');
    const args = [join(own.dataDir, 'store.db'), `.backup '${copy}'`];
    const { status, stderr } = spawnSync('sqlite3', args, { encoding: 'utf8' });
    expect([status, stderr]).toEqual([0, '']);
    await set('after_*');
    await server.stop();

    const restored = join(own.dataDir, 'restored');
    mkdirSync(restored, { mode: 0o700 });
    copyFileSync(copy, join(restored, 'store.db'));
    const dataDir = ['--data-dir', restored, '--counters', '1024'];
    const { port } = await own.start({ args: dataDir });
    const fields = { namespaceName: 'default' };
    const { overrides } = await callOperationOk(port, 'ratelimits.listOverrides', fields);
    expect(overrides).toMatchObject([{ identifier: 'before_*' }]);
  },
);
