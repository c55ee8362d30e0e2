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

/** What a user can change by keys. */
export interface ScreenState {
  /** Why there are no newer figures. */
  problem: string | undefined;
  sort: Sort;
  isPaused: boolean;
}

/** The orders of the namespaces. The key s selects the next one. */
export const SORTS = ['checks', 'denied', 'name'] as const;
export type Sort = (typeof SORTS)[number];

const ESCAPE = '\u001b';
const STYLES = { bold: '1', dim: '2', red: '31', yellow: '33' } as const;
type Style = keyof typeof STYLES;
/** From this share of denied checks on, a row is red. */
const MOSTLY_DENIED = 0.5;

interface Line {
  text: string;
  style?: Style | undefined;
}

interface Row {
  cells: string[];
  style?: Style | undefined;
}

const NAMESPACE_HEADER = ['ALLOWED/S', 'DENIED/S', 'DENIED %', 'ALLOWED', 'DENIED', 'NAMESPACE'];
/** A blank line and a header line above a table. */
const TABLE_LINES = 2;

/**
 * The whole text.
 * @param listMax the most lines of a list
 */
export function viewText(view: View, listMax: number): string {
  const lines = [...headOf(view), ...tables(view, view.namespaces, () => listMax)];
  return lines.map(({ text }) => `${text}\n`).join('');
}

/** What fits on a screen, with the keys in its last line. */
export function screenLines(
  view: View,
  state: ScreenState,
  { rows, columns, hasColor }: { rows: number; columns: number; hasColor: boolean },
): string[] {
  const head = headOf(view);
  if (state.problem !== undefined) {
    const text = `no new figures: ${escapeUnprintable(state.problem)}`;
    head.push({ text, style: 'red' });
  }
  const listMax = (usedLines: number, listsLeft: number) => {
    const free = rows - 1 - head.length - usedLines - listsLeft * TABLE_LINES;
    return Math.max(0, Math.floor(free / listsLeft));
  };
  const lines = [...head, ...tables(view, sorted(view.namespaces, state.sort), listMax)];
  const shown = lines.slice(0, rows - 1);
  while (shown.length < rows - 1) shown.push({ text: '' });
  return [...shown, keyLine(view, state)].map(({ text, style }) => {
    const cut = cutLine(text, columns);
    if (style === undefined || !hasColor) return cut;
    return `${ESCAPE}[${STYLES[style]}m${cut}${ESCAPE}[0m`;
  });
}

function headOf({ url, atMs, namespaces, identifiers }: View): Line[] {
  const note = identifiers?.isComplete === false ? `  ${INCOMPLETE}` : '';
  const time = isoTime(Math.floor(atMs / 1_000) * 1_000);
  const title = { text: `weir top  ${url}  ${time}  counts of this hour${note}` };
  // The row of a single namespace has the same figures.
  if (identifiers !== undefined) return [title];
  const allowed = sumOf(namespaces.map((rate) => rate.allowed));
  const denied = sumOf(namespaces.map((rate) => rate.denied));
  const checks = sumOf([allowed, denied]);
  const rates = [`${rateCell(checks)} checks/s`, `${rateCell(allowed)} allowed/s`];
  const text = [...rates, `${rateCell(denied)} denied/s`, `${shareCell(allowed, denied)} % denied`];
  return [title, { text: `total  ${text.join('  ')}`, style: 'bold' }];
}

function keyLine({ identifiers }: View, { sort, isPaused }: ScreenState): Line {
  const keys = [
    'q quit',
    // A single namespace has one row.
    ...(identifiers === undefined ? [`s sort: by ${sort}`] : []),
    isPaused ? 'p go on: paused' : 'p pause',
  ];
  return { text: keys.join('   '), style: 'dim' };
}

/** By the averages of the last seconds, so that rows keep their places. */
function sorted(namespaces: readonly NamespaceRate[], sort: Sort): readonly NamespaceRate[] {
  // They come in the order of their checks.
  if (sort === 'checks') return namespaces;
  return namespaces.toSorted((a, b) => {
    if (sort === 'name') return a.name < b.name ? -1 : 1;
    return b.smoothed.denied - a.smoothed.denied;
  });
}

/**
 * The lines below the head.
 * @param listMax how many lines the next list may have, by the lines above it and the number of
 * lists that are left
 */
function tables(
  { identifiers }: View,
  namespaces: readonly NamespaceRate[],
  listMax: (usedLines: number, listsLeft: number) => number,
): Line[] {
  const lines: Line[] = [];
  const add = (header: readonly string[], rows: Row[], listsLeft: number) => {
    const shown = rows.slice(0, listMax(lines.length, listsLeft));
    const cells = shown.map((row) => row.cells);
    const [title, ...texts] = formatTable(header, cells, header.length - 1)
      .trimEnd()
      .split('\n');
    lines.push({ text: '' }, { text: title, style: 'bold' });
    lines.push(...texts.map((text, i) => ({ text, style: shown[i].style })));
  };
  const listCount = identifiers === undefined ? 1 : 3;
  add(NAMESPACE_HEADER, namespaces.map(namespaceRow), listCount);
  if (identifiers === undefined) return lines;
  add(['DENIED/S', 'DENIED', 'IDENTIFIER'], identifiers.denied.map(identifierRow), 2);
  add(['TOKENS/S', 'TOKENS', 'IDENTIFIER'], identifiers.spent.map(identifierRow), 1);
  return lines;
}

function namespaceRow({ allowed, denied, hour, name }: NamespaceRate): Row {
  const rates = [rateCell(allowed), rateCell(denied), shareCell(allowed, denied)];
  const counts = [String(hour.allowed), String(hour.denied)];
  const share = deniedShare(allowed, denied) ?? 0;
  const style = share === 0 ? undefined : share < MOSTLY_DENIED ? 'yellow' : 'red';
  return { cells: [...rates, ...counts, formatCell(name)], style };
}

function identifierRow(rate: IdentifierRate): Row {
  return { cells: [rateCell(rate.perSecond), countCell(rate), identifierCell(rate)] };
}

function rateCell(rate: number | undefined): string {
  if (rate === undefined) return '-';
  return rate > 0 && rate < 10 ? rate.toFixed(1) : String(Math.round(rate));
}

/** @returns undefined without checks */
function deniedShare(allowed = 0, denied = 0): number | undefined {
  const checks = allowed + denied;
  return checks === 0 ? undefined : denied / checks;
}

function shareCell(allowed: number | undefined, denied: number | undefined): string {
  const share = deniedShare(allowed, denied);
  return share === undefined ? '-' : (100 * share).toFixed(1);
}

/** @returns undefined if no value is known */
function sumOf(values: readonly (number | undefined)[]): number | undefined {
  const known = values.filter((value) => value !== undefined);
  return known.length === 0 ? undefined : known.reduce((sum, value) => sum + value, 0);
}

/** Characters that are two columns wide may exceed the screen: its terminal does not wrap them. */
function cutLine(line: string, columns: number): string {
  const characters = [...line];
  if (characters.length <= columns) return line;
  return `${characters.slice(0, columns - 1).join('')}…`;
}
