/**
 * The folder with the configuration files of the rate limit service: every file in it and in its
 * subfolders. Names that begin with a dot are ignored: in the volume of a ConfigMap, `..data` has
 * the same files once more. A folder that cannot be used is a StartError.
 */

import { readdirSync, readFileSync, realpathSync, type Stats, statSync } from 'node:fs';
import { join } from 'node:path';
import {
  RLS_FILE_MAX_BYTES,
  RLS_FILES_MAX,
  RLS_FOLDER_DEPTH_MAX,
  RLS_FOLDER_ENTRIES_MAX,
  RLS_FOLDER_MAX_BYTES,
} from '../../core/constants.ts';
import { describeFileError } from '../../core/errno.ts';
import { StartError } from '../../core/errors.ts';
import type { RlsFile } from './parse.ts';

interface Folder {
  files: RlsFile[];
  /** See `folderSignature`. */
  signature: string;
}

/** A file that was found, and not read yet. */
interface FoundFile {
  path: string;
  realPath: string;
  inode: bigint;
  size: bigint;
  mtimeNs: bigint;
}

const decoder = new TextDecoder('utf-8', { fatal: true });

/** A folder that changes is read again so often. */
const READ_ATTEMPTS = 3;

/**
 * The files in the order of their paths, all of one time: a folder that changed meanwhile is read
 * again, because half of a new ConfigMap would be another configuration.
 * @throws StartError if there is no file, or a file cannot be read
 */
export function readFolder(path: string): Folder {
  let fault: StartError | undefined;
  for (let attempts = 0; attempts < READ_ATTEMPTS; attempts++) {
    try {
      const found = findFiles(path);
      const folder = { files: readFiles(path, found), signature: signatureOf(found) };
      if (folderSignature(path) === folder.signature) return folder;
      fault = new StartError(
        `${path} must stay the same while it is read; it changed each of ${READ_ATTEMPTS} times`,
      );
    } catch (error) {
      // A file may have been removed meanwhile.
      if (!(error instanceof StartError)) throw error;
      fault = error;
    }
  }
  throw fault!;
}

function readFiles(path: string, found: readonly FoundFile[]): RlsFile[] {
  if (found.length === 0) {
    throw new StartError(
      `${path} has no file: it must be a folder with at least one YAML file, whose name does not` +
        ' begin with a dot',
    );
  }
  const total = found.reduce((sum, { size }) => sum + size, 0n);
  if (total > RLS_FOLDER_MAX_BYTES) {
    const rule = `the files in ${path} must have at most ${RLS_FOLDER_MAX_BYTES} bytes together`;
    throw new StartError(`${rule}; got ${total}`);
  }
  return found.map(readFile);
}

/**
 * A text that is different after a file was added, removed, replaced or written, also by a new
 * target of a symbolic link. It reads no file, so that a caller can poll it.
 */
export function folderSignature(path: string): string {
  return signatureOf(findFiles(path));
}

function signatureOf(found: readonly FoundFile[]): string {
  return found
    .map(({ path, realPath, inode, size, mtimeNs }) => {
      return JSON.stringify([path, realPath, `${inode} ${size} ${mtimeNs}`]);
    })
    .join('\n');
}

function findFiles(path: string): FoundFile[] {
  const found: FoundFile[] = [];
  let entries = 0;
  /** @param around the real paths of the folders around this one, which a link may name */
  const search = (folder: string, around: readonly string[]) => {
    const realFolder = attempt(folder, () => realpathSync(folder));
    if (around.includes(realFolder)) return;
    if (around.length > RLS_FOLDER_DEPTH_MAX) {
      const rule = `folders in ${path} must be nested at most ${RLS_FOLDER_DEPTH_MAX} deep`;
      throw new StartError(`${rule}; got ${folder}`);
    }
    for (const name of attempt(folder, () => readdirSync(folder)).toSorted()) {
      if (name.startsWith('.')) continue;
      if (++entries > RLS_FOLDER_ENTRIES_MAX) {
        const rule = `${path} must have at most ${RLS_FOLDER_ENTRIES_MAX} files and folders`;
        throw new StartError(`${rule}; got more`);
      }
      const entry = join(folder, name);
      const stats = attempt(entry, () => statSync(entry, { bigint: true }));
      if (stats.isDirectory()) search(entry, [...around, realFolder]);
      if (!stats.isFile()) continue;
      const realPath = attempt(entry, () => realpathSync(entry));
      const { ino: inode, size, mtimeNs } = stats;
      if (found.push({ path: entry, realPath, inode, size, mtimeNs }) > RLS_FILES_MAX) {
        throw new StartError(`${path} must have at most ${RLS_FILES_MAX} files; got more`);
      }
    }
  };
  requireFolder(path);
  search(path, []);
  return found.toSorted((a, b) => (a.path < b.path ? -1 : 1));
}

function requireFolder(path: string): void {
  const accepted = 'it must be a folder with YAML files';
  let stats: Stats;
  try {
    stats = statSync(path);
  } catch (error) {
    throw new StartError(`${path} cannot be read: ${describeFileError(error)}; ${accepted}`);
  }
  if (!stats.isDirectory()) throw new StartError(`${path} is not a folder; ${accepted}`);
}

function readFile({ path, size }: FoundFile): RlsFile {
  const bytes = attempt(path, () => readFileSync(path));
  if (size > RLS_FILE_MAX_BYTES || bytes.length > RLS_FILE_MAX_BYTES) {
    const got = Math.max(Number(size), bytes.length);
    throw new StartError(`${path} must have at most ${RLS_FILE_MAX_BYTES} bytes; got ${got}`);
  }
  try {
    return { name: path, text: decoder.decode(bytes) };
  } catch {
    throw new StartError(`${path} must be a text in UTF-8; it has other bytes`);
  }
}

function attempt<T>(path: string, action: () => T): T {
  try {
    return action();
  } catch (error) {
    throw new StartError(`${path} cannot be read: ${describeFileError(error)}`);
  }
}
