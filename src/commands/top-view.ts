/** The lines of `weir top`. None has a character that moves the cursor. */

import { isoTime } from '../shared-memory/clock.ts';
import { countCell, INCOMPLETE, identifierCell } from './analytics.ts';
import { escapeUnprintable, formatCell, formatTable } from './output.ts';
import type { IdentifierRate, IdentifierRates, NamespaceRate } from './top-rates.ts';

export interface View {
  url: string;
  /** Unix ms of the readings. */
  atMs: number;
  namespaces: readonly NamespaceRate[];
  /** With a namespace. */
  identifiers: IdentifierRates | undefined;
}

const NAMESPACE_HEADER = ['ALLOWED/S', 'DENIED/S', 'ALLOWED', 'DENIED', 'NAMESPACE'];
/** A blank line and a header line above a table. */
const TABLE_LINES = 2;

/**
 * The whole text.
 * @param listMax the most lines of a list
 */
export function viewText(view: View, listMax: number): string {
  return `${[headOf(view), ...tables(view, () => listMax)].join('\n')}\n`;
}

/**
 * What fits on a screen.
 * @param problem why there are no newer figures
 */
export function screenLines(
  view: View,
  problem: string | undefined,
  { rows, columns }: { rows: number; columns: number },
): string[] {
  const head = [`${headOf(view)}  q: quit`];
  if (problem !== undefined) head.push(`no new figures: ${escapeUnprintable(problem)}`);
  const listMax = (usedLines: number, listsLeft: number) => {
    const free = rows - head.length - usedLines - listsLeft * TABLE_LINES;
    return Math.max(0, Math.floor(free / listsLeft));
  };
  const lines = [...head, ...tables(view, listMax)];
  return lines.slice(0, rows).map((line) => cutLine(line, columns));
}

function headOf({ url, atMs, identifiers }: View): string {
  const note = identifiers?.isComplete === false ? `  ${INCOMPLETE}` : '';
  const time = isoTime(Math.floor(atMs / 1_000) * 1_000);
  return `weir top  ${url}  ${time}  counts of this hour${note}`;
}

/**
 * The lines below the head.
 * @param listMax how many lines the next list may have, by the lines above it and the number of
 * lists that are left
 */
function tables(
  { namespaces, identifiers }: View,
  listMax: (usedLines: number, listsLeft: number) => number,
): string[] {
  const lines: string[] = [];
  const add = (header: readonly string[], rows: string[][], listsLeft: number) => {
    const shown = rows.slice(0, listMax(lines.length, listsLeft));
    const table = formatTable(header, shown, header.length - 1);
    lines.push('', ...table.trimEnd().split('\n'));
  };
  const listCount = identifiers === undefined ? 1 : 3;
  add(NAMESPACE_HEADER, namespaces.map(namespaceRow), listCount);
  if (identifiers === undefined) return lines;
  add(['DENIED/S', 'DENIED', 'IDENTIFIER'], identifiers.denied.map(identifierRow), 2);
  add(['TOKENS/S', 'TOKENS', 'IDENTIFIER'], identifiers.spent.map(identifierRow), 1);
  return lines;
}

function namespaceRow({ allowed, denied, hour, name }: NamespaceRate): string[] {
  const counts = [String(hour.allowed), String(hour.denied)];
  return [rateCell(allowed), rateCell(denied), ...counts, formatCell(name)];
}

function identifierRow(rate: IdentifierRate): string[] {
  return [rateCell(rate.perSecond), countCell(rate), identifierCell(rate)];
}

function rateCell(rate: number | undefined): string {
  if (rate === undefined) return '-';
  return rate > 0 && rate < 10 ? rate.toFixed(1) : String(Math.round(rate));
}

/** Characters that are two columns wide may exceed the screen: its terminal does not wrap them. */
function cutLine(line: string, columns: number): string {
  const characters = [...line];
  if (characters.length <= columns) return line;
  return `${characters.slice(0, columns - 1).join('')}…`;
}
