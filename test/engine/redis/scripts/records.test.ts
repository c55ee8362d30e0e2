import { readdirSync, readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { MESSAGES, RECORDS } from '../../../../src/engine/redis/scripts/records.ts';

const FOLDER = 'src/engine/redis/scripts';
const files = readdirSync(FOLDER)
  .filter((name) => name.endsWith('.lua'))
  .map((name) => ({ name, text: readFileSync(`${FOLDER}/${name}`, 'utf8') }));

const layouts = new Map(Object.entries({ ...RECORDS, ...MESSAGES }));
const UNPACK = /^ *(?:local )?((?:\w+,\s+)*\w+)\s*=\s*unpack\(([A-Z_]+),/gm;

/** `deducted` is the variable `ownDeducted` where its record is that of the member itself. */
function prefixOf(variable: string, field: string): string | undefined {
  if (variable === field) return '';
  const end = field[0].toUpperCase() + field.slice(1);
  return variable.endsWith(end) ? variable.slice(0, -end.length) : undefined;
}

const readings = files.flatMap(({ name, text }) => {
  return [...text.matchAll(UNPACK)].map(([, variables, layout]) => {
    return { name, layout, variables: variables.split(',').map((variable) => variable.trim()) };
  });
});

describe('the scripts', () => {
  it('read each record into variables that have the names of its fields, in their order', () => {
    expect(new Set(readings.map(({ layout }) => layout))).toEqual(new Set(layouts.keys()));
    for (const { name, layout, variables } of readings) {
      const { names } = layouts.get(layout)!;
      // After all fields there may be the position of what follows.
      expect(variables.length).toBeLessThanOrEqual(names.length + 1);
      const prefixes = names
        .slice(0, variables.length)
        .flatMap((field, i) => (variables[i] === '_' ? [] : [prefixOf(variables[i], field)]));
      expect([name, layout, ...new Set(prefixes)]).toEqual([name, layout, expect.any(String)]);
    }
  });

  it('write each record with a value for each of its fields', () => {
    const writings = files.flatMap(({ name, text }) => {
      return [...text.matchAll(/\bpack\(([A-Z_]+),/g)].map(({ 0: begin, 1: layout, index }) => {
        return { name, layout, count: countArguments(text.slice(index + begin.length)) };
      });
    });
    expect(writings.length).toBeGreaterThan(layouts.size);
    for (const { name, layout, count } of writings) {
      expect([name, layout, count]).toEqual([name, layout, layouts.get(layout)?.names.length]);
    }
  });
});

/** How many arguments there are up to the parenthesis that closes their list. */
function countArguments(text: string): number {
  let count = 1;
  for (let at = 0, depth = 0; depth >= 0; at++) {
    if (text[at] === '(') depth++;
    else if (text[at] === ')') depth--;
    else if (text[at] === ',' && depth === 0) count++;
  }
  return count;
}
