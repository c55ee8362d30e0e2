/** Text for people on standard output: tables, and texts that a terminal shows as they are. */

/** Characters that a terminal would act on, or not show. */
const UNPRINTABLE_CHARACTERS = /[\p{C}\p{Zl}\p{Zp}]/gu;

/** A text in quotes, without characters that a terminal would act on. */
export function quoted(text: string): string {
  return JSON.stringify(text).replace(UNPRINTABLE_CHARACTERS, (character) => {
    return `\\u{${character.codePointAt(0)?.toString(16)}}`;
  });
}

/** A text as a cell of a table: in quotes only where it could be misread without. */
export function formatCell(text: string): string {
  return text !== '' && text.search(/[\s"\p{C}]/u) === -1 ? text : quoted(text);
}

/** Aligned columns under a header line. */
export function formatTable(header: readonly string[], rows: readonly string[][]): string {
  const widths = header.map((title, column) => {
    return rows.reduce((most, row) => Math.max(most, [...row[column]].length), title.length);
  });
  return [header, ...rows]
    .map((row) => {
      const cells = row.map((text, column) => text + ' '.repeat(widths[column] - [...text].length));
      return `${cells.join('  ').trimEnd()}\n`;
    })
    .join('');
}

/** A count with its noun: `1 counter`, `2 counters`. */
export function formatCount(count: number, noun: string): string {
  return `${count} ${noun}${count === 1 ? '' : 's'}`;
}
