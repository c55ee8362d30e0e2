/**
 * Owners and modes in the data directory. weir sets the modes of what its own user owns: 0700 for
 * the directory, 0600 for its files. A volume that an orchestrator mounts belongs to another user,
 * often root. weir uses it unchanged, and other users may write to it, so weir follows no symbolic
 * link in it and waits for no FIFO. An unusable file stops the start, except a checkpoint file,
 * which weir skips and replaces.
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

/** A directory of another user that its group or others may read or write. */
export interface DirectoryExposure {
  dataDir: string;
  ownerUid: number;
  mode: string;
}

/** Undefined on systems without numeric user ids. */
const ownUid = process.getuid?.();
const isRoot = ownUid === 0;
const isOwn = (uid: number) => ownUid === undefined || uid === ownUid;

/** Does not follow a symbolic link, and does not wait for the writer of a FIFO. */
export const SAFE_OPEN_FLAGS = constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK;

/** Files of other users that an error names. */
const NAMED_FILES_MAX = 3;

/** @throws StartError if the directory belongs to another user and weir may not use it */
export function requireAccess(path: string): void {
  const { uid, mode } = statSync(path);
  const { R_OK, W_OK, X_OK } = constants;
  if (isOwn(uid) || hasAccess(path, R_OK | W_OK | X_OK)) return;
  throw new StartError(
    `the data directory ${path} belongs to uid ${uid} and has mode ${octal(mode)}: weir runs as` +
      ` uid ${ownUid} and must be allowed to read and write it`,
  );
}

/** Sets the mode of the directory if weir's user owns it. */
export function restrictDirectory(path: string): DirectoryExposure | undefined {
  const { uid, mode } = statSync(path);
  if (isOwn(uid)) chmodSync(path, 0o700);
  else if ((mode & 0o066) !== 0) return { dataDir: path, ownerUid: uid, mode: octal(mode) };
  return undefined;
}

/**
 * Checks files without opening them: SQLite opens some of them itself, and would follow a link.
 * @throws if one of them is not a regular file, belongs to another user or is read-only
 */
export function requireUsableFiles(directory: string, names: readonly string[]): void {
  const files = names.flatMap((name) => {
    const stats = lstatSync(join(directory, name), { throwIfNoEntry: false });
    return stats === undefined ? [] : [{ name, stats }];
  });
  // One error for all of them, so that the operator can fix them together.
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

/** Sets the mode of a file that weir's user owns. Ignores an unusable file: its user reports it. */
export function restrictFile(path: string): void {
  const stats = lstatSync(path, { throwIfNoEntry: false });
  if (stats === undefined || !needsRestriction(stats)) return;
  const file = openSync(path, SAFE_OPEN_FLAGS);
  try {
    // The file may have been replaced before it was opened.
    if (needsRestriction(fstatSync(file))) fchmodSync(file, 0o600);
  } finally {
    closeSync(file);
  }
}

/** Why weir cannot use a file of its directory; undefined if it can. */
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

/** A file must be readable to be opened and then restricted through its descriptor. */
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
