/** Text on standard output: tables, and values that a terminal shows without interpreting them. */

import { isoTime, systemMs } from '../shared-memory/clock.ts';

/** Characters that a terminal interprets or does not show. */
const UNPRINTABLE_CHARACTERS = /[\p{C}\p{Zl}\p{Zp}]/gu;

/** A text without characters that a terminal interprets. */
export function escapeUnprintable(text: string): string {
  return text.replace(UNPRINTABLE_CHARACTERS, (character) => {
    return `\\u{${character.codePointAt(0)?.toString(16)}}`;
  });
}

/** A text in quotes, with unprintable characters escaped. */
export function quoted(text: string): string {
  return escapeUnprintable(JSON.stringify(text));
}

/** A text as a cell of a table: in quotes only if it would be ambiguous without them. */
export function formatCell(text: string): string {
  return text !== '' && text.search(/[\s"\p{C}]/u) === -1 ? text : quoted(text);
}

/** Aligned columns under a header line. @param numbers how many columns at the left have numbers */
export function formatTable(
  header: readonly string[],
  rows: readonly string[][],
  numbers = 0,
): string {
  const widths = header.map((title, column) => {
    return rows.reduce((most, row) => Math.max(most, [...row[column]].length), title.length);
  });
  return [header, ...rows]
    .map((row) => {
      const cells = row.map((text, column) => {
        const padding = ' '.repeat(widths[column] - [...text].length);
        return column < numbers ? padding + text : text + padding;
      });
      return `${cells.join('  ').trimEnd()}\n`;
    })
    .join('');
}

/** The time at which something ends, which may have no end. @param ms Unix time */
export function formatEnd(ms: number | undefined): string {
  return ms === undefined ? 'never' : isoTime(ms);
}

/** A time, and the seconds until then. @param ms Unix time */
export function formatTimeFromNow(ms: number): string {
  return `${isoTime(ms)} (in ${Math.max(0, Math.ceil((ms - systemMs()) / 1_000))} s)`;
}

/** A count with its noun: `1 counter`, `2 counters`. */
export function formatCount(count: number, singular: string, plural = `${singular}s`): string {
  return `${count} ${count === 1 ? singular : plural}`;
}
