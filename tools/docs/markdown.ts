/** Markdown for the generated documentation. */

/** A compact table. Cells are Markdown; a line break or a `|` in one is replaced. */
export function markdownTable(
  header: readonly string[],
  rows: readonly (readonly string[])[],
): string {
  const line = (cells: readonly string[]) => `| ${cells.map(escapeCell).join(' | ')} |`;
  const rule = `|${header.map(() => '---').join('|')}|`;
  return [line(header), rule, ...rows.map(line)].join('\n');
}

export function inlineCode(text: string): string {
  return `\`${text}\``;
}

/** A fenced block. @param language of the text, as in `sh` or `json` */
export function codeBlock(language: string, text: string): string {
  return `\`\`\`${language}\n${text.trimEnd()}\n\`\`\``;
}

const PROSE_COLUMNS = 100;

/** Breaks the lines of paragraphs and of lists, and keeps headings and blank lines. */
export function wrapProse(markdown: string): string {
  return markdown.split('\n').flatMap(wrapLine).join('\n');
}

function wrapLine(line: string): string[] {
  if (line.startsWith('#')) return [line];
  const [marker] = /^(?:- |\d+\. )?/.exec(line) ?? [''];
  const lines: string[] = [];
  let open = marker;
  for (const word of line.slice(marker.length).split(' ')) {
    const isFirst = open.trim() === marker.trim();
    const longer = isFirst ? `${open}${word}` : `${open} ${word}`;
    if (isFirst || longer.length <= PROSE_COLUMNS) {
      open = longer;
      continue;
    }
    lines.push(open);
    open = `${' '.repeat(marker.length)}${word}`;
  }
  return [...lines, open];
}

function escapeCell(text: string): string {
  return text.replace(/\s*\n\s*/g, ' ').replace(/(?<!\\)\|/g, '\\|');
}
