/**
 * A table of records, which the reader orders by its columns. It orders the rows that are loaded,
 * in the browser, and shows more of them on request.
 */

import type { ComponentChildren } from 'preact';
import { useState } from 'preact/hooks';
import { headingOf, Select, type Sort, Table } from './controls.tsx';
import { formatWhole } from './format.ts';

/** Rows that are shown at first, and that a button adds. A narrow screen has a card for each. */
const ROWS_SHOWN = 50;
const CARDS_SHOWN = 20;
const NARROW = '(max-width: 48rem)';

type SortValue = number | string | undefined;

export interface Column<Row> {
  /** As in `Table`. */
  name: string;
  cell: (row: Row) => ComponentChildren;
  /** What orders the rows. Without it, the column does not. */
  value?: (row: Row) => SortValue;
  /** A bar below the number, whose color has this meaning. */
  bar?: 'neutral' | 'denied';
  /** The value of a full bar. By default, the largest of the rows. */
  barMax?: number;
  /** Whether the cell names the row. By default, that of the first column does. */
  isHeader?: boolean;
}

interface SortedTableProps<Row> {
  caption: string;
  columns: readonly Column<Row>[];
  rows: readonly Row[];
  keyOf: (row: Row) => string;
  /** Whether there are more rows than those that were loaded. */
  isPartial?: boolean;
}

export function SortedTable<Row>({
  caption,
  columns,
  rows,
  keyOf,
  isPartial = false,
}: SortedTableProps<Row>) {
  const step = matchMedia(NARROW).matches ? CARDS_SHOWN : ROWS_SHOWN;
  const [shownMax, setShownMax] = useState(step);
  const [sort, setSort] = useState<Sort>();
  const choose = (name: string) => {
    const isNumber = name.endsWith('#');
    setSort((before) => {
      return {
        column: name,
        isDescending: before?.column === name ? !before.isDescending : isNumber,
      };
    });
  };
  const sortable = columns.filter(({ value }) => value !== undefined).map(({ name }) => name);
  const by = columns.find(({ name }) => name === sort?.column)?.value;
  const ordered = by === undefined ? rows : inOrder(rows, by, sort?.isDescending === true);
  const maxOf = ({ bar, barMax, value }: Column<Row>) => {
    if (bar === undefined || barMax !== undefined) return barMax ?? 0;
    return Math.max(0, ...rows.map((row) => numberOf(value?.(row))));
  };
  const withBars = columns.map((column) => ({ ...column, max: maxOf(column) }));
  const hasHeader = columns.some(({ isHeader }) => isHeader);
  return (
    <>
      {sortable.length > 0 && (
        <div class="sort-choice">
          <Select
            label="Sort by"
            value={sort?.column ?? ''}
            onChoose={(name) => (name === '' ? setSort(undefined) : choose(name))}
            options={[
              ['', 'as listed'],
              ...sortable.map((name) => [name, headingOf(name)] as const),
            ]}
          />
        </div>
      )}
      <Table
        caption={caption}
        columns={columns.map(({ name }) => name)}
        sortable={sortable}
        sort={sort}
        onSort={choose}
      >
        {ordered.slice(0, shownMax).map((row) => (
          <tr key={keyOf(row)}>
            {withBars.map(({ name, cell, value, bar, max, isHeader }, i) => {
              if (isHeader ?? (!hasHeader && i === 0)) {
                return (
                  <th key={name} scope="row" class={name.toLowerCase()}>
                    {cell(row)}
                  </th>
                );
              }
              const isNumber = name.endsWith('#');
              const share = max > 0 ? numberOf(value?.(row)) / max : 0;
              return (
                <td
                  key={name}
                  class={isNumber ? `number ${bar ? `bar ${bar}` : ''}` : name.toLowerCase()}
                  // Set as a property of the style, which the Content Security Policy permits.
                  style={bar && { '--share': String(share) }}
                >
                  {cell(row)}
                </td>
              );
            })}
          </tr>
        ))}
      </Table>
      {sort !== undefined && isPartial && (
        <p class="hint">
          {`Sorted are the ${formatWhole(rows.length)} loaded rows. There are more.`}
        </p>
      )}
      {ordered.length > shownMax && (
        <p class="more">
          <button type="button" onClick={() => setShownMax(shownMax + step)}>
            Show more
          </button>{' '}
          <span class="hint">
            {`${formatWhole(shownMax)} of ${formatWhole(ordered.length)} are shown.`}
          </span>
        </p>
      )}
    </>
  );
}

function numberOf(value: SortValue): number {
  return typeof value === 'number' ? value : 0;
}

/** Rows without a value come last in both directions. */
function inOrder<Row>(
  rows: readonly Row[],
  read: (row: Row) => SortValue,
  isDescending: boolean,
): Row[] {
  const direction = isDescending ? -1 : 1;
  const compare = (a: number | string, b: number | string) => {
    if (typeof a === 'number' && typeof b === 'number') return a - b;
    return String(a).localeCompare(String(b), undefined, { numeric: true });
  };
  return rows.toSorted((first, second) => {
    const [a, b] = [read(first), read(second)];
    if (a === undefined || b === undefined)
      return Number(a === undefined) - Number(b === undefined);
    return direction * compare(a, b);
  });
}
