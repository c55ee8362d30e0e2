/** A file with one JSON value per line. A line at fault is a StartError with its place. */

import { isUtf8 } from 'node:buffer';
import { readFileSync } from 'node:fs';
import { describe } from '../describe.ts';
import { StartError } from '../errors.ts';

/**
 * @param path `-` is standard input
 * @returns the values, and the line of each; empty lines are left out
 */
export function linesOf(path: string): { items: unknown[]; lines: number[] } {
  const name = path === '-' ? 'standard input' : path;
  let bytes: Buffer;
  try {
    bytes = readFileSync(path === '-' ? 0 : path);
  } catch (error) {
    throw new StartError(`${name} cannot be read: ${(error as Error).message}`);
  }
  if (!isUtf8(bytes)) throw new StartError(`${name} must be UTF-8, and it is not`);
  const items: unknown[] = [];
  const lines: number[] = [];
  const text = bytes.toString().replace(/^\ufeff/, '');
  for (const [i, line] of text.split('\n').entries()) {
    if (line.trim() === '') continue;
    try {
      items.push(JSON.parse(line));
    } catch {
      const place = `line ${i + 1}, column ${faultColumn(line)}`;
      throw new StartError(`${name}, ${place}: not JSON; got ${describe(line)}`);
    }
    lines.push(i + 1);
  }
  return { items, lines };
}

/** The column, from 1, at which a text stops being JSON. */
function faultColumn(text: string): number {
  const { message } = faultOf(text) ?? new Error();
  const position = /at position (\d+)/.exec(message)?.[1];
  if (position !== undefined) return Number(position) + 1;
  if (!isStray(message)) return text.length + 1;
  // V8 does not say where an unexpected token is: it is the end of the shortest part that has one.
  let before = 0;
  let within = text.length;
  while (within - before > 1) {
    const middle = (before + within) >> 1;
    if (isStray(faultOf(text.slice(0, middle))?.message ?? '')) within = middle;
    else before = middle;
  }
  return within;
}

function isStray(message: string): boolean {
  return message.endsWith('is not valid JSON');
}

function faultOf(text: string): Error | undefined {
  try {
    JSON.parse(text);
    return undefined;
  } catch (error) {
    return error as Error;
  }
}
