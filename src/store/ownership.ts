/**
 * Owners and modes in the data directory. weir sets the mode of what its own user owns: 0700 for
 * the directory, 0600 for its files. A volume that an orchestrator has mounted belongs to another
 * user, often to root; it is used as it is. A file that weir cannot rely on stops the start.
 */

import { accessSync, chmodSync, constants, statSync } from 'node:fs';
import { StartError } from '../errors.ts';

/** A directory of another user that the group or others may read or write. */
export interface Exposure {
  dataDir: string;
  ownerUid: number;
  mode: string;
}

/** Undefined where the system knows no users by number. */
const ownUid = process.getuid?.();
const isRoot = ownUid === 0;
const isOwn = (uid: number) => ownUid === undefined || uid === ownUid;

/** @throws StartError when the directory is another user's and weir may not use it */
export function requireAccess(path: string): void {
  const { uid, mode } = statSync(path);
  const { R_OK, W_OK, X_OK } = constants;
  if (isOwn(uid) || isAllowed(path, R_OK | W_OK | X_OK)) return;
  throw new StartError(
    `the data directory ${path} belongs to uid ${uid} and has mode ${octal(mode)}: weir runs as` +
      ` uid ${ownUid} and must be allowed to read and write it`,
  );
}

/** Restricts the directory where it is weir's own. */
export function takeDirectory(path: string): Exposure | undefined {
  const { uid, mode } = statSync(path);
  if (isOwn(uid)) chmodSync(path, 0o700);
  else if ((mode & 0o066) !== 0) return { dataDir: path, ownerUid: uid, mode: octal(mode) };
  return undefined;
}

/** Restricts a file of weir's. @throws when it belongs to another user or is read-only */
export function takeFile(path: string): void {
  const { uid, mode } = statSync(path);
  if (!isOwn(uid)) {
    if (isRoot) return;
    throw new Error(
      `${path} belongs to uid ${uid} and has mode ${octal(mode)}: weir runs as uid ${ownUid}, and` +
        ` files in its data directory must belong to that user (chown ${ownUid})`,
    );
  }
  if ((mode & 0o600) !== 0o600) {
    throw new Error(
      `${path} has mode ${octal(mode)}: weir must be allowed to read and write it (chmod 600)`,
    );
  }
  if ((mode & 0o777) !== 0o600) chmodSync(path, 0o600);
}

function isAllowed(path: string, how: number): boolean {
  try {
    accessSync(path, how);
    return true;
  } catch {
    return false;
  }
}

function octal(mode: number): string {
  return (mode & 0o7777).toString(8).padStart(4, '0');
}
