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

/** Whether any request for a lease was decided. */
export function countsLeases({ leasesGranted = 0, leasesDenied = 0 }: Partial<Figures>): boolean {
  return leasesGranted + leasesDenied > 0;
}

/**
 * The columns of a table that the reader orders.
 * @param hasLeases whether there are leases at all; otherwise they have no columns
 * @param per the time of each figure, as `/s`
 */
export function figureColumns<Row extends Partial<Figures>>(
  format: (figure: number) => string,
  hasLeases: boolean,
  per = '',
): Column<Row>[] {
  const shown = SHOWN.filter(({ name }) => hasLeases || !name.startsWith('leases'));
  return shown.flatMap(({ name, label }): Column<Row>[] => {
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
