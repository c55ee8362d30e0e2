/**
 * The table of the constants of the lease protocol. Their reasons are the comments of the file that
 * declares them. A comment is about all declarations up to the next empty line or comment.
 */

import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import * as declared from '../../src/engine/redis/scripts/protocol-constants.ts';
import { markdownTable } from './markdown.ts';
import { grouped } from './quantities.ts';

const FILE = 'src/engine/redis/scripts/protocol-constants.ts';
const DECLARATIONS = /\/\*\*((?:(?!\*\/)[\s\S])*)\*\/\n((?:export const .*\n)+)/g;
const VALUES: Record<string, number | Record<string, number>> = declared;

export function protocolConstantsTable(root: string): string {
  const rows: string[][] = [];
  for (const [, comment, lines] of readFileSync(join(root, FILE), 'utf8').matchAll(DECLARATIONS)) {
    const names = Array.from(lines.matchAll(/const (\w+)/g), ([, name]) => name);
    const reason = comment.replaceAll(/\s*\n \*\s*/g, ' ').trim();
    rows.push([
      names.map((name) => `\`${name}\``).join('<br>'),
      names.map((name) => valueText(VALUES[name])).join('<br>'),
      reason,
    ]);
  }
  return markdownTable(['constant', 'value', 'what it is, and why'], rows);
}

function valueText(value: number | Record<string, number>): string {
  if (typeof value !== 'number') {
    return Object.entries(value)
      .map(([name, part]) => `${name} ${valueText(part)}`)
      .join(', ');
  }
  if (Number.isInteger(value)) return grouped(value);
  return value < 0.1 && Number.isInteger(1 / value) ? `1/${1 / value}` : String(value);
}
