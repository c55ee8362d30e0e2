/**
 * Owners and modes of the data directory and of its files. A server of another user is tested in
 * test/system/deploy.
 */

import { execFileSync } from 'node:child_process';
import {
  chmodSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { EXIT } from '../../src/core/exit.ts';
import * as asOwner from '../../src/core/file-ownership.ts';
import { DataDirectory } from '../../src/registry/store/directory.ts';
import { useDataDirectory } from '../support/data-directory.ts';
import { CLI_PATH, spawnServer } from '../support/server.ts';
import { withStore } from '../support/store.ts';

const UID = process.getuid?.() ?? 0;
const OTHER_UID = UID + 1;
const own = useDataDirectory([]);

/** The module in a process with another user id, or without one as on Windows. */
async function loadWithUid(uid: number | undefined): Promise<typeof asOwner> {
  const { getuid } = process;
  Object.assign(process, { getuid: uid === undefined ? undefined : () => uid });
  try {
    // With a query it is loaded once more.
    const path = `../../src/core/file-ownership.ts?uid=${uid}`;
    return await import(path);
  } finally {
    Object.assign(process, { getuid });
  }
}
const asOther = await loadWithUid(OTHER_UID);
const asRoot = await loadWithUid(0);
const asNobody = await loadWithUid(undefined);

const modeOf = (path: string) => lstatSync(path).mode & 0o7777;
const makeFile = (name: string, mode: number) => {
  const path = join(own.dataDir, name);
  writeFileSync(path, 'precious', { flag: 'a' });
  chmodSync(path, mode);
  return path;
};
const KINDS = ['a symbolic link', 'a FIFO', 'a directory'];
/** @returns the file to which a link leads */
const place = (path: string, kind: string) => {
  const target = makeFile('target', 0o644);
  rmSync(path, { recursive: true, force: true });
  if (kind === 'a FIFO') execFileSync('mkfifo', [path]);
  else if (kind === 'a directory') mkdirSync(path, { mode: 0o755 });
  else symlinkSync(target, path);
  return target;
};

describe('a directory', () => {
  test('of the own user is restricted', () => {
    for (const { restrictDirectory } of [asOwner, asNobody]) {
      chmodSync(own.dataDir, 0o2777);
      expect(restrictDirectory(own.dataDir)).toBeUndefined();
      expect(modeOf(own.dataDir)).toBe(0o700);
    }
  });

  test.each([
    [0o2770, true],
    [0o2704, true],
    [0o720, true],
    [0o711, false],
    [0o700, false],
  ])('of another user with mode %o is unchanged, and exposed: %s', (mode, isExposed) => {
    chmodSync(own.dataDir, mode);
    const exposure = asOther.restrictDirectory(own.dataDir);
    const shown = mode.toString(8).padStart(4, '0');
    const expected = { dataDir: own.dataDir, ownerUid: UID, mode: shown };
    expect(exposure).toEqual(isExposed ? expected : undefined);
    expect(modeOf(own.dataDir)).toBe(mode);
  });

  test('of another user must be accessible', () => {
    chmodSync(own.dataDir, 0o755);
    asOther.requireAccess(own.dataDir);
    // Not even root may execute it.
    const path = makeFile('not-executable', 0o644);
    expect(() => asOther.requireAccess(path)).toThrow(
      `the data directory ${path} belongs to uid ${UID} and has mode 0644: weir runs as uid` +
        ` ${OTHER_UID} and must be allowed to read and write it`,
    );
    asOwner.requireAccess(path);
  });
});

describe('a file', () => {
  test('of the own user is restricted, unless it is unreadable or no regular file', () => {
    for (const [mode, expected] of [
      [0o644, 0o600],
      [0o4600, 0o4600],
      [0o444, 0o600],
      [0o266, 0o266],
    ]) {
      const path = makeFile(`file-${mode}`, mode);
      asOwner.restrictFile(path);
      expect(modeOf(path)).toBe(expected);
    }
    asOwner.restrictFile(join(own.dataDir, 'missing'));
    for (const kind of KINDS) {
      const path = join(own.dataDir, 'other');
      const target = place(path, kind);
      const before = modeOf(path);
      asOwner.restrictFile(path);
      expect([modeOf(path), modeOf(target)]).toEqual([before, 0o644]);
    }
  });

  test('of another user is not restricted', () => {
    const path = makeFile('file', 0o644);
    asOther.restrictFile(path);
    expect(modeOf(path)).toBe(0o644);
  });

  test('is usable if it is regular, and its user may read and write it', () => {
    const reasonOf = (module: typeof asOwner, mode: number) => {
      return module.unusableReason(lstatSync(makeFile('file', mode)));
    };
    expect(reasonOf(asOwner, 0o600)).toBeUndefined();
    expect(reasonOf(asNobody, 0o644)).toBeUndefined();
    for (const mode of [0o400, 0o200, 0o066]) {
      expect(reasonOf(asOwner, mode)).toBe(
        `has mode 0${mode.toString(8).padStart(3, '0')}: weir must be allowed to read and write` +
          ' it (chmod 600)',
      );
    }
    expect(reasonOf(asOther, 0o666)).toBe(
      `belongs to uid ${UID}, and weir runs as uid ${OTHER_UID}`,
    );
    expect(asOwner.unusableReason(statSync('/dev/null'))).toBe('is a device, not a regular file');
  });

  test('of any user is usable for root, whatever its mode', () => {
    const stats = lstatSync(makeFile('file', 0o000));
    stats.uid = 65_534;
    expect(asRoot.unusableReason(stats)).toBeUndefined();
  });
});

describe('files', () => {
  test('of another user are named in one error, three of them', () => {
    for (const name of ['a', 'b', 'c']) makeFile(name, 0o640);
    place(join(own.dataDir, 'link'), 'a symbolic link');
    const require = (...names: string[]) => {
      asOther.requireUsableFiles(own.dataDir, [...names, 'missing']);
    };
    const each = (names: string) => names.replace(/\w+/g, `$& (uid ${UID}, mode 0640)`);
    const remedy =
      `; weir runs as uid ${OTHER_UID}, and its files must belong to that user` +
      ` (chown -R ${OTHER_UID} ${own.dataDir})`;
    require();
    expect(() => require('a', 'b', 'c')).toThrow(
      `files in it belong to another user: ${each('a, b, c')}${remedy}`,
    );
    makeFile('d', 0o640);
    makeFile('e', 0o640);
    expect(() => require('a', 'b', 'c', 'd', 'e')).toThrow(
      `${each('a, b, c')} and 2 more${remedy}`,
    );
    expect(() => require('a', 'link')).toThrow('link is a symbolic link, not a regular file');
  });
});

describe('the data directory', () => {
  const open = () => DataDirectory.open(own.dataDir);

  test.each(
    ['lock', 'lock-journal', 'store.db', 'store.db-wal', 'store.db.new'].flatMap((name) => {
      return KINDS.map((kind) => ({ name, kind }));
    }),
  )('cannot be used if $name is $kind, which is not changed', ({ name, kind }) => {
    open().close();
    const path = join(own.dataDir, name);
    const target = place(path, kind);
    expect(open).toThrow(
      `the data directory ${own.dataDir} cannot be used: ${path} is ${kind}, not a regular file`,
    );
    expect([readFileSync(target, 'utf8'), modeOf(target)]).toEqual(['precious', 0o644]);
  });

  test.each(['lock', 'store.db'])('cannot be used with a read-only %s', (name) => {
    open().close();
    const path = makeFile(name, 0o400);
    expect(open).toThrow(`${path} has mode 0400: weir must be allowed to read and write it`);
  });

  test('has its files restricted, and neither copies of the store nor other files', () => {
    open().close();
    const restricted = ['lock', 'store.db', 'store.db-wal', 'counters-0.0'];
    const unchanged = ['store.db-bak', 'lock-x', 'store.db.new-old', 'counters'];
    for (const name of [...restricted, ...unchanged]) makeFile(name, 0o644);
    place(join(own.dataDir, 'store.db-link'), 'a symbolic link');
    open().close();
    const namesWithMode = (mode: number) => {
      return readdirSync(own.dataDir).filter((name) => modeOf(join(own.dataDir, name)) === mode);
    };
    expect(namesWithMode(0o600).sort()).toEqual(restricted.toSorted());
    expect(namesWithMode(0o644).sort()).toEqual([...unchanged, 'target'].sort());
  });

  test('stops a start by one sentence if it cannot be used', async () => {
    place(join(own.dataDir, 'lock'), 'a FIFO');
    const failed = await spawnServer(own.dataDir);
    expect(await failed.exited).toEqual({ code: EXIT.CANNOT_SERVE, signal: null });
    expect(failed.stderr()).toMatch(
      /^weir: the data directory .* is a FIFO, not a regular file\n$/,
    );
  });
});

test('weir keys create --offline creates restricted files with any umask', () => {
  const before = process.umask(0);
  try {
    const { dataDir } = own;
    withStore(dataDir, () => {});
    rmSync(join(dataDir, 'lock'));
    const create = ['keys', 'create', '--name', 'k', '--permission', '*', '--offline', '--json'];
    const args = [CLI_PATH, ...create, '--data-dir', dataDir];
    const output = execFileSync(process.execPath, args, { encoding: 'utf8' });
    expect(JSON.parse(output)).toHaveProperty('key');
    const modes = readdirSync(dataDir).map((name) => [name, modeOf(join(dataDir, name))]);
    expect(modes).toEqual(expect.arrayContaining([['lock', 0o600]]));
    expect(modes.filter(([, mode]) => mode !== 0o600)).toEqual([]);
  } finally {
    process.umask(before);
  }
});
