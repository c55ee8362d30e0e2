/** Reads a file with one JSON value per line. An error is a StartError with the line and column. */

import { isUtf8 } from 'node:buffer';
import { readFileSync } from 'node:fs';
import { describeFileError } from '../core/errno.ts';
import { StartError } from '../core/errors.ts';
import { findJsonSyntaxError } from '../core/json-text.ts';

/**
 * @param path `-` is standard input
 * @returns the values, and the line number of each; empty lines are skipped
 */
export function readJsonLines(path: string): { items: unknown[]; lines: number[] } {
  const name = path === '-' ? 'standard input' : path;
  let bytes: Buffer;
  try {
    bytes = readFileSync(path === '-' ? 0 : path);
  } catch (error) {
    throw new StartError(`${name} cannot be read: ${describeFileError(error)}`);
  }
  if (!isUtf8(bytes)) throw new StartError(`${name} must be UTF-8; got bytes that are not`);
  const items: unknown[] = [];
  const lines: number[] = [];
  const text = bytes.toString().replace(/^\ufeff/, '');
  for (const [i, line] of text.split('\n').entries()) {
    if (line.trim() === '') continue;
    try {
      items.push(JSON.parse(line));
    } catch {
      const { column, reason } = findJsonSyntaxError(line) ?? {
        column: 1,
        reason: 'nested too deeply',
      };
      throw new StartError(`${name}, line ${i + 1}, column ${column}: not JSON: ${reason}`);
    }
    lines.push(i + 1);
  }
  return { items, lines };
}
