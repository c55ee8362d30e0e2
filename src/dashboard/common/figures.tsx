/** Figures as people read them: short numbers, and the columns that tables have for a namespace. */

import { FIGURES, type Figures } from '../../core/figures.ts';
import { formatExact, formatShare, formatShort } from './format.ts';
import type { Column } from './sorted-table.tsx';

const SHOWN = FIGURES.filter(({ label }) => label !== undefined);

interface ShortProps {
  value: number;
  format?: (value: number) => string;
}

/** A number in short, whose title is the exact one. */
export function Short({ value, format = formatShort }: ShortProps) {
  return <span title={formatExact(value)}>{format(value)}</span>;
}

function deniedShare({ allowed = 0, denied = 0 }: Partial<Figures>): string {
  return allowed + denied === 0 ? '–' : formatShare(denied / (allowed + denied));
}

/** The columns of a table that the reader orders. @param per the time of each figure, as `/s` */
export function figureColumns<Row extends Partial<Figures>>(
  format: (figure: number) => string,
  per = '',
): Column<Row>[] {
  return SHOWN.flatMap(({ name, label }): Column<Row>[] => {
    const column: Column<Row> = {
      name: `${label}${per}#`,
      cell: ({ [name]: figure }) =>
        figure === undefined ? '–' : <Short value={figure} format={format} />,
      value: ({ [name]: figure }) => figure,
    };
    if (name === 'allowed') return [{ ...column, bar: 'neutral' }];
    if (name !== 'denied') return [column];
    return [
      column,
      {
        name: 'Denied share#',
        cell: deniedShare,
        value: ({ allowed = 0, denied = 0 }) => denied / Math.max(1, allowed + denied),
        ...{ bar: 'denied', barMax: 1 },
      },
    ];
  });
}
