/** Texts and codes for errors of file operations and of SQLite. */

const MESSAGES: Readonly<Record<string, string>> = {
  ENOENT: 'no such file or directory',
  EACCES: 'permission denied',
  EISDIR: 'it is a directory',
};

/** SQLite reports ENOSPC by this code. The stores have no other maximum size. */
const SQLITE_NO_SPACE = 'SQLITE_FULL';

/** @param error of a file operation. @returns the text of its code, or else its message */
export function describeFileError(error: unknown): string {
  const { code = '', message } = error as NodeJS.ErrnoException;
  return Object.hasOwn(MESSAGES, code) ? MESSAGES[code] : message;
}

/** @param error of a file operation or of SQLite. @returns its message, which names ENOSPC */
export function describeStorageError(error: unknown): string {
  const { code, message } = error as NodeJS.ErrnoException;
  return code === SQLITE_NO_SPACE ? 'ENOSPC: no space left on device' : message;
}

/** @returns the code of `storageErrorCode`, or the message of an error without one */
export function storageErrorCause(error: unknown): string {
  return storageErrorCode(error) ?? (error as Error).message;
}

/** @returns the code of the system, for example ENOSPC, or of SQLite; undefined without one */
export function storageErrorCode(error: unknown): string | undefined {
  const { code, rawCode } = error as { code?: string; rawCode?: number };
  if (code === SQLITE_NO_SPACE) return 'ENOSPC';
  // The number distinguishes a failed write from a failed fsync.
  return rawCode === undefined ? code : `${code} ${rawCode}`;
}
