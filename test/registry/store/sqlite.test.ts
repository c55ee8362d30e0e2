import {
  chmodSync,
  existsSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  truncateSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { crc32 } from 'node:zlib';
import Database from 'libsql';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { AUDIT_ENTRIES_MAX } from '../../../src/core/constants.ts';
import { StartError } from '../../../src/core/errors.ts';
import { POLICY_DEFAULTS, type Policy } from '../../../src/policies/policy.ts';
import { Registry } from '../../../src/registry/registry.ts';
import { DataDirectory } from '../../../src/registry/store/directory.ts';
import type { AuditEntry } from '../../../src/registry/store/schema.ts';
import { TABLE_NAMES } from '../../../src/registry/store/schema.ts';
import { SqliteStore } from '../../../src/registry/store/sqlite.ts';
import type { Change } from '../../../src/registry/store/store.ts';
import { removeDirectory, temporaryDirectory } from '../../support/server.ts';
import { addKey, addRecords, readRecords, withStore } from '../../support/store.ts';
import { writeStoreVersion2 } from '../../support/store-version-2.ts';

let dataDir: string;
let path: string;
beforeEach(() => {
  dataDir = temporaryDirectory();
  path = join(dataDir, 'store.db');
});
afterEach(() => removeDirectory(dataDir));

const fill = () => {
  withStore(dataDir, (store) => {
    addKey(store, { id: 'key_1', permissions: ['ratelimit.*.limit'], expiresMs: 5 });
    const records = Array.from({ length: 400 }, (_, i) => ({
      id: `rlns_${i}`,
      name: `n'${i}\u0000😀`,
      createdMs: i,
    }));
    addRecords(store, 'namespaces', records.slice(0, 20));
    addRecords(store, 'namespaces', records.slice(20));
    const override = { limit: 5, durationMs: 1_000, isAsync: false, createdMs: 1 };
    const overrides = Array.from({ length: 100 }, (_, i) => {
      return { id: `rlor_${i}`, scope: `rlns_${i % 3}`, identifier: `😀_${i}_*`, ...override };
    });
    addRecords(store, 'overrides', overrides);
    addRecords(store, 'audit', entries(20));
    addRecords(store, 'policies', [POLICY]);
  });
};
const entries = (length: number): AuditEntry[] => {
  return Array.from({ length }, (_, i) => {
    return { at: i, action: 'key.create', keyId: 'key_1', target: { name: `😀_${i}` } };
  });
};
const POLICY: Policy = {
  ...POLICY_DEFAULTS,
  namespace: 'login',
  gateway: 'nginx',
  windows: [{ limit: 5, duration: 60_000 }],
  identify: ['ip'],
};
/** Opens the store and counts the records of each table. */
const countRecords = () =>
  withStore(dataDir, (store) => TABLE_NAMES.map((table) => store.read(table).length));
const FILLED = [1, 400, 100, 20, 1];
/** Gives the store another version, with a valid checksum. */
const setVersion = (version: string) => {
  const database = new Database(path);
  const meta = database.prepare('UPDATE meta SET record = ?, crc = ? WHERE name = ?');
  meta.run(Buffer.from(version), crc32(`version${version}`), 'version');
  database.close();
};

describe('the store', () => {
  test('has the same records and the same hash key after it was closed and reopened', () => {
    const hashKey = withStore(dataDir, (store) => [...store.hashKey]);
    expect(hashKey.length).toBe(16);
    fill();
    withStore(dataDir, (store) => {
      expect([...store.hashKey]).toEqual(hashKey);
      expect(store.read('keys')).toMatchObject([
        { id: 'key_1', permissions: ['ratelimit.*.limit'], expiresMs: 5 },
      ]);
      const last = { row: 400, id: 'rlns_399', name: "n'399\u0000😀", createdMs: 399 };
      expect(store.read('namespaces').at(-1)).toEqual(last);
    });
  });

  test('of another directory has another hash key', () => {
    const other = temporaryDirectory();
    const keys = [dataDir, other].map((directory) => {
      return withStore(directory, (store) => Buffer.from(store.hashKey).toString('hex'));
    });
    expect(keys[0]).not.toBe(keys[1]);
    removeDirectory(other);
  });

  test('writes no record twice if only the acknowledged revision cannot be written', () => {
    const directory = DataDirectory.open(dataDir);
    const store = SqliteStore.open(directory);
    const records = [{ id: 'rlns_1', name: 'a', createdMs: 1 }];
    // As on a full disk, which had space for the records but not for the lock file.
    directory.acknowledge = () => {
      throw new Error('disk full');
    };
    addRecords(store, 'namespaces', records);
    expect(readRecords(store, 'namespaces')).toEqual(records);
    store.close();
    directory.close();
    expect(withStore(dataDir, (again) => readRecords(again, 'namespaces'))).toEqual(records);
  });

  test('changes and removes records, all changes of a commit or none', () => {
    fill();
    const [before, removed] = withStore(dataDir, (store) => store.read('overrides'));
    const after = { ...before, limit: 6, isAsync: true };
    const changes: Change[] = [
      { table: 'overrides', before, after },
      { table: 'overrides', before: removed, after: undefined },
    ];
    withStore(dataDir, (store) => store.commit(changes));
    withStore(dataDir, (store) => {
      const overrides = store.read('overrides');
      expect(overrides.length).toBe(99);
      expect(overrides[0]).toEqual(after);
      expect(overrides[1].row).toBe(removed.row + 1);
      // The second change fails, because the record is already removed.
      const again: Change[] = [{ table: 'overrides', before: after, after: before }, changes[1]];
      expect(() => store.commit(again)).toThrow('0 rows of overrides changed');
      expect(store.read('overrides')).toEqual(overrides);
    });
    expect(countRecords()).toEqual([1, 400, 99, 20, 1]);
  });

  test('of version 1 gets the missing tables and keeps its records', () => {
    fill();
    setVersion('1');
    const database = new Database(path);
    for (const table of ['overrides', 'audit', 'policies']) {
      database.exec(`DROP TABLE ${table}; DELETE FROM meta WHERE name = '${table}.count'`);
    }
    database.close();
    expect(countRecords()).toEqual([1, 400, 0, 0, 0]);
    withStore(dataDir, (store) => {
      const override = { limit: 5, durationMs: 1_000, isAsync: false, createdMs: 1 };
      const record = { id: 'rlor_1', scope: 'rlns_1', identifier: 'abc', ...override };
      addRecords(store, 'overrides', [record]);
    });
    expect(countRecords()).toEqual([1, 400, 1, 0, 0]);
  });

  test('that version 2 has written gets the missing tables and keeps its records', () => {
    writeStoreVersion2(path);
    for (let start = 0; start < 2; start++) {
      withStore(dataDir, (store) => {
        expect(readRecords(store, 'keys')).toMatchObject([{ name: 'of version 2' }]);
        expect(readRecords(store, 'namespaces').map(({ name }) => name)).toEqual(['login', 'api']);
        expect(readRecords(store, 'overrides')).toMatchObject([
          { identifier: 'user_*', limit: 100 },
          { scope: 'a*', identifier: 'user_1', limit: 7 },
        ]);
        expect(readRecords(store, 'audit')).toEqual(entries(5).slice(0, 5 * start));
        if (start === 0) addRecords(store, 'audit', entries(5));
      });
    }
  });

  test('of version 2 is unchanged if its upgrade fails', () => {
    writeStoreVersion2(path);
    const database = new Database(path);
    // The upgrade creates two tables, and the second one exists already.
    database.exec('CREATE TABLE policies (record BLOB)');
    const tables = () => database.prepare('SELECT name FROM sqlite_schema ORDER BY name').all();
    const meta = () => database.prepare('SELECT name, record FROM meta ORDER BY name').all();
    const before = [tables(), meta()];
    expect(countRecords).toThrow('table policies already exists');
    expect([tables(), meta()]).toEqual(before);
    database.exec('DROP TABLE policies');
    database.close();
    expect(countRecords()).toEqual([1, 2, 2, 0, 0]);
  });

  test('keeps only the newest entries of the audit log, up to the maximum', () => {
    withStore(dataDir, (store) => {
      addRecords(store, 'audit', entries(AUDIT_ENTRIES_MAX - 1));
      addRecords(store, 'audit', entries(1));
      expect(store.auditCount).toBe(AUDIT_ENTRIES_MAX);
      addRecords(store, 'audit', entries(3));
      expect(store.auditCount).toBe(AUDIT_ENTRIES_MAX);
      const [oldest] = store.read('audit');
      expect(oldest.row).toBe(4);
      expect(store.newestAuditRow).toBe(AUDIT_ENTRIES_MAX + 3);
    });
    expect(countRecords()[TABLE_NAMES.indexOf('audit')]).toBe(AUDIT_ENTRIES_MAX);
  });

  test('reads pages of the audit log, newest first, despite damaged entries in other pages', () => {
    fill();
    const database = new Database(path);
    database.exec('UPDATE audit SET crc = crc + 1 WHERE rowid IN (5, 20)');
    database.close();
    withStore(dataDir, (store) => {
      expect(store.readAudit(20, 3).map(({ row, at }) => [row, at])).toEqual([
        [19, 18],
        [18, 17],
        [17, 16],
      ]);
      expect(store.readAudit(4, 10).map(({ row }) => row)).toEqual([3, 2, 1]);
      const damaged = 'cannot be trusted: a record of audit does not match its checksum';
      for (const below of [6, 21]) expect(() => store.readAudit(below, 1)).toThrow(damaged);
      // New entries can follow a damaged one.
      const registry = new Registry(store);
      const [entry] = entries(1);
      registry.audit(entry);
      registry.commit(store);
      expect(store.readAudit(22, 1)).toEqual([{ ...entry, row: 21 }]);
    });
  });

  test('is created again after an incomplete creation, and not replaced later', () => {
    writeFileSync(join(dataDir, 'store.db.new'), 'incomplete');
    fill();
    expect(existsSync(join(dataDir, 'store.db.new'))).toBe(false);
    expect(countRecords()).toEqual(FILLED);
  });
});

describe('a store that cannot be trusted stops the start with one sentence', () => {
  const startError = () => {
    const before = existsSync(path) ? readFileSync(path) : undefined;
    let message = '';
    try {
      countRecords();
    } catch (error) {
      expect(error).toBeInstanceOf(StartError);
      message = (error as Error).message;
    }
    // The store is unchanged and was not replaced by an empty one.
    if (before !== undefined && before.length > 0) {
      expect(readFileSync(path).equals(before)).toBe(true);
    }
    expect(message).not.toContain('\n');
    return message;
  };

  test.each([
    ['missing', () => {}, 'is missing although it was created before'],
    ['empty', () => writeFileSync(path, ''), 'cannot be trusted: it is empty'],
    ['no database', () => writeFileSync(path, 'no store'.repeat(500)), 'cannot be trusted: '],
    [
      'of a later version',
      () => {
        writeStoreVersion2(path);
        setVersion('4');
      },
      'cannot be trusted: it has version 4, and this weir supports versions 1 to 3',
    ],
    [
      'of a version that a fault has written',
      (filled: Buffer) => {
        writeFileSync(path, filled);
        const database = new Database(path);
        database.exec("UPDATE meta SET crc = crc + 1 WHERE name = 'version'");
        database.close();
      },
      'cannot be trusted: version does not match its checksum',
    ],
  ])('when it is %s', (_, replace, message) => {
    fill();
    const intact = readFileSync(path);
    rmSync(path);
    replace(intact);
    expect(startError()).toContain(`${path} ${message}`);
    for (const file of [path, `${path}-wal`, `${path}-shm`]) rmSync(file, { force: true });
    writeFileSync(path, intact);
    expect(countRecords()).toEqual(FILLED);
  });

  test('when it is truncated anywhere', () => {
    fill();
    const { size } = statSync(path);
    for (let tenth = 1; tenth < 10; tenth++) {
      const intact = readFileSync(path);
      truncateSync(path, Math.floor((size * tenth) / 10));
      expect(startError()).toContain(`the store ${path} cannot be trusted: `);
      writeFileSync(path, intact);
    }
    expect(countRecords()).toEqual(FILLED);
  });

  test('when a bit is flipped, unless the bit is unused', () => {
    fill();
    const contents = () =>
      withStore(dataDir, (store) => {
        return JSON.stringify([
          [...store.hashKey],
          ...TABLE_NAMES.map((table) => store.read(table)),
        ]);
      });
    const expected = contents();
    const intact = readFileSync(path);
    let rejected = 0;
    for (let i = 0; i < 250; i++) {
      const damaged = Buffer.from(intact);
      damaged[Math.floor((i * intact.length) / 250) + (i % 7)] ^= 1 << (i % 8);
      writeFileSync(path, damaged);
      try {
        expect(contents()).toBe(expected);
      } catch (error) {
        expect([i, (error as Error).message]).toEqual([
          i,
          expect.stringContaining('cannot be trusted'),
        ]);
        rejected++;
      }
    }
    expect(rejected).toBeGreaterThan(100);
    writeFileSync(path, intact);
    expect(contents()).toBe(expected);
  });
});

describe('a data directory', () => {
  test('is locked until it is closed', () => {
    const first = DataDirectory.open(dataDir);
    expect(() => DataDirectory.open(dataDir)).toThrow('in use by another weir');
    first.close();
    DataDirectory.open(dataDir).close();
  });

  test('that cannot be created gives an error with its path', () => {
    writeFileSync(join(dataDir, 'file'), '');
    for (const path of [join(dataDir, 'file', 'directory'), '/proc/nowhere/directory']) {
      expect(() => DataDirectory.open(path)).toThrow(`the data directory ${path} cannot be used`);
    }
  });

  test('keeps copies of its store for the owner only', () => {
    fill();
    const copy = withStore(dataDir, (store) => store.saveCopy('copy'));
    expect(statSync(copy).mode & 0o777).toBe(0o600);
    renameSync(copy, path);
    expect(countRecords()).toEqual(FILLED);
  });

  test('with files of other programs is rejected, but the lost+found of a volume is accepted', () => {
    writeFileSync(join(dataDir, 'lost+found'), '');
    fill();
    expect(readdirSync(dataDir)).toContain('store.db');
    const other = temporaryDirectory();
    writeFileSync(join(other, 'notes'), '');
    chmodSync(other, 0o755);
    expect(() => DataDirectory.open(other)).toThrow('give weir a directory of its own');
    // It is unchanged.
    expect([statSync(other).mode & 0o777, readdirSync(other)]).toEqual([0o755, ['notes']]);
    removeDirectory(other);
  });
});
