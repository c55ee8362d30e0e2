/**
 * Owners and modes in the data directory. weir sets the mode of what its own user owns: 0700 for
 * the directory, 0600 for its files. A volume that an orchestrator has mounted belongs to another
 * user, often to root; it is used as it is, and other users may put things into it: no link in it
 * is followed, and no FIFO waited for. A file that weir cannot rely on stops the start, except for
 * files of counters, which are left out and replaced.
 */

import {
  accessSync,
  chmodSync,
  closeSync,
  constants,
  fchmodSync,
  fstatSync,
  lstatSync,
  openSync,
  type Stats,
  statSync,
} from 'node:fs';
import { join } from 'node:path';
import { StartError } from './errors.ts';

/** A directory of another user that the group or others may read or write. */
export interface DirectoryExposure {
  dataDir: string;
  ownerUid: number;
  mode: string;
}

/** Undefined where the system knows no users by number. */
const ownUid = process.getuid?.();
const isRoot = ownUid === 0;
const isOwn = (uid: number) => ownUid === undefined || uid === ownUid;

/** Neither follows a link nor waits for the other end of a FIFO. */
export const SAFE_OPEN_FLAGS = constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK;

/** Files of other users that a refusal names. */
const NAMED_FILES_MAX = 3;

/** @throws StartError when the directory is another user's and weir may not use it */
export function requireAccess(path: string): void {
  const { uid, mode } = statSync(path);
  const { R_OK, W_OK, X_OK } = constants;
  if (isOwn(uid) || hasAccess(path, R_OK | W_OK | X_OK)) return;
  throw new StartError(
    `the data directory ${path} belongs to uid ${uid} and has mode ${octal(mode)}: weir runs as` +
      ` uid ${ownUid} and must be allowed to read and write it`,
  );
}

/** Restricts the directory where it is weir's own. */
export function restrictDirectory(path: string): DirectoryExposure | undefined {
  const { uid, mode } = statSync(path);
  if (isOwn(uid)) chmodSync(path, 0o700);
  else if ((mode & 0o066) !== 0) return { dataDir: path, ownerUid: uid, mode: octal(mode) };
  return undefined;
}

/**
 * Looks at files without opening them: SQLite opens some of them itself, and would follow a link.
 * @throws when one of them is no regular file, belongs to another user or is read-only
 */
export function requireUsableFiles(directory: string, names: readonly string[]): void {
  const files = names.flatMap((name) => {
    const stats = lstatSync(join(directory, name), { throwIfNoEntry: false });
    return stats === undefined ? [] : [{ name, stats }];
  });
  // All of them in one sentence, so that they are mended at once.
  const foreign = files.filter(({ stats }) => stats.isFile() && isForeign(stats));
  for (const { name, stats } of files) {
    const fault = unusableReason(stats);
    if (fault === undefined || foreign.some((file) => file.name === name)) continue;
    throw new Error(`${join(directory, name)} ${fault}`);
  }
  if (foreign.length === 0) return;
  const named = foreign.slice(0, NAMED_FILES_MAX).map(({ name, stats: { uid, mode } }) => {
    return `${name} (uid ${uid}, mode ${octal(mode)})`;
  });
  const rest = foreign.length - named.length;
  const more = rest > 0 ? ` and ${rest} more` : '';
  throw new Error(
    `files in it belong to another user: ${named.join(', ')}${more};` +
      ` weir runs as uid ${ownUid}, and its files must belong to that user` +
      ` (chown -R ${ownUid} ${directory})`,
  );
}

/** Restricts a file of weir's own. One that weir cannot use is left to what uses it. */
export function restrictFile(path: string): void {
  const stats = lstatSync(path, { throwIfNoEntry: false });
  if (stats === undefined || !needsRestriction(stats)) return;
  const file = openSync(path, SAFE_OPEN_FLAGS);
  try {
    // Another one may have come in its place.
    if (needsRestriction(fstatSync(file))) fchmodSync(file, 0o600);
  } finally {
    closeSync(file);
  }
}

/** Why weir cannot use a file in its directory; undefined where it can. */
export function unusableReason(stats: Stats): string | undefined {
  const { uid, mode } = stats;
  if (!stats.isFile()) return `is ${describeFileType(stats)}, not a regular file`;
  if (isForeign(stats)) return `belongs to uid ${uid}, and weir runs as uid ${ownUid}`;
  if (isOwn(uid) && (mode & 0o600) !== 0o600) {
    return `has mode ${octal(mode)}: weir must be allowed to read and write it (chmod 600)`;
  }
  return undefined;
}

/** Root may use the files of every user. */
function isForeign({ uid }: Stats): boolean {
  return !isOwn(uid) && !isRoot;
}

/** Only what can be opened for reading can be restricted through a descriptor. */
function needsRestriction(stats: Stats): boolean {
  const { uid, mode } = stats;
  return stats.isFile() && isOwn(uid) && (mode & 0o400) !== 0 && (mode & 0o777) !== 0o600;
}

function describeFileType(stats: Stats): string {
  if (stats.isSymbolicLink()) return 'a symbolic link';
  if (stats.isDirectory()) return 'a directory';
  if (stats.isFIFO()) return 'a FIFO';
  return stats.isSocket() ? 'a socket' : 'a device';
}

function hasAccess(path: string, accessMode: number): boolean {
  try {
    accessSync(path, accessMode);
    return true;
  } catch {
    return false;
  }
}

function octal(mode: number): string {
  return (mode & 0o7777).toString(8).padStart(4, '0');
}
