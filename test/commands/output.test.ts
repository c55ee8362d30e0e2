/** Values of clients in tables: a terminal must not interpret any character of them. */

import fc from 'fast-check';
import { expect, test } from 'vitest';
import { formatCell, formatTable } from '../../src/commands/output.ts';

const texts = fc.string({ unit: 'binary' });

test('a cell has no character that a terminal interprets, and differs for different texts', () => {
  fc.assert(
    fc.property(texts, texts, (one, other) => {
      expect(formatCell(one)).toMatch(/^[^\p{C}\p{Zl}\p{Zp}]+$/u);
      expect(formatCell(one) === formatCell(other)).toBe(one === other);
    }),
  );
  for (const text of ['\u001b[2J', '\u009b2J', '\u202eabc', 'a\nb', '\ud800', '', ' ', '"a"']) {
    expect(formatCell(text)).toMatch(/^"[^\p{C}]*"$/u);
  }
  for (const text of ['user_*', 'é', '日本', '\\u{1b}', 'a\\']) expect(formatCell(text)).toBe(text);
});

test('the columns of a table are aligned with its header', () => {
  const rows = fc.array(fc.tuple(texts.map(formatCell), texts.map(formatCell)), { maxLength: 9 });
  fc.assert(
    fc.property(rows, (rows) => {
      const lines = formatTable(['FIRST', 'SECOND'], rows).split('\n');
      expect(lines.length).toBe(rows.length + 2);
      const at = lines[0].indexOf('SECOND');
      const second = lines.slice(1, -1).map((line) => [...line].slice(at).join(''));
      expect(second).toEqual(rows.map(([, text]) => text));
    }),
  );
});
