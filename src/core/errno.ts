/** What the system's error codes about files mean, in words. */

const MESSAGES: Readonly<Record<string, string>> = {
  ENOENT: 'no such file or directory',
  EACCES: 'permission denied',
  EISDIR: 'it is a directory',
};

/** @param error thrown where a file was read; any other keeps its message */
export function describeFileError(error: unknown): string {
  const { code = '', message } = error as NodeJS.ErrnoException;
  return Object.hasOwn(MESSAGES, code) ? MESSAGES[code] : message;
}
