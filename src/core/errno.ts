/** Texts for the system's error codes of file operations. */

const MESSAGES: Readonly<Record<string, string>> = {
  ENOENT: 'no such file or directory',
  EACCES: 'permission denied',
  EISDIR: 'it is a directory',
};

/** @param error of a file operation. @returns the text of its code, or else its message */
export function describeFileError(error: unknown): string {
  const { code = '', message } = error as NodeJS.ErrnoException;
  return Object.hasOwn(MESSAGES, code) ? MESSAGES[code] : message;
}
