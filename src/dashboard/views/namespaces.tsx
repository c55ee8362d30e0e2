/** All namespaces, with their figures of a time. */

import { useState } from 'preact/hooks';
import type { ViewProps } from '../common/context.ts';
import { ErrorNote, Field, Note, useLoad, useTicks } from '../common/controls.tsx';
import { Copy } from '../common/copy.tsx';
import { countsLeases, figureColumns } from '../common/figures.tsx';
import { formatShort, formatSpan, formatWhole } from '../common/format.ts';
import type { PastMinute } from '../common/minutes.ts';
import { useNamespaces } from '../common/namespaces.ts';
import { call, type NamespaceTotals } from '../common/operations.ts';
import { RangeButtons, rangeOfAddress } from '../common/range.tsx';
import { linkTo } from '../common/router.ts';
import { type Column, SortedTable } from '../common/sorted-table.tsx';
import { DeniedSparkline } from '../common/sparkline.tsx';
import { Name } from '../common/text.tsx';
import { rangeOf } from '../common/time-range.ts';

/** How often the figures are read again. */
const REFRESH_MS = 5_000;

export function NamespacesView({ grant, live, route }: ViewProps) {
  const [range, setRange] = rangeOfAddress(route);
  const [filter, setFilter] = useState('');
  const known = useNamespaces(grant);
  const ticks = useTicks(REFRESH_MS);
  const figures = useLoad(
    async () => {
      if (!grant.mayInSome('read_analytics')) return undefined;
      return call('analytics.getNamespaces', rangeOf(range));
    },
    [range],
    ticks,
  );
  const hasHistory = figures.error === undefined;
  const byName = new Map<string, Partial<NamespaceTotals>>();
  for (const { id, name } of known.data ?? []) byName.set(name, { id, name });
  const sinceStart = live.history.at(-1)?.namespaces ?? [];
  const counted = hasHistory
    ? (figures.data?.namespaces ?? [])
    : sinceStart.map(
        ({ id, name, total }): NamespaceTotals => ({ ...(id && { id }), name, ...total }),
      );
  for (const totals of counted) byName.set(totals.name, totals);
  const rows = [...byName.values()]
    .filter(({ name = '' }) => name.toLowerCase().includes(filter.toLowerCase()))
    .toSorted((a, b) => checksOf(b) - checksOf(a) || a.name!.localeCompare(b.name!));
  return (
    <>
      <h1 tabIndex={-1}>Namespaces</h1>
      <div class="toolbar">
        <RangeButtons range={range} onChoose={setRange} />
        <Field
          label="Name contains"
          type="search"
          value={filter}
          onInput={({ currentTarget }) => setFilter(currentTarget.value)}
        />
      </div>
      <ErrorNote error={known.error ?? figures.error} />
      {hasHistory && figures.data !== undefined && (
        <p class="hint">
          Namespaces are counted by hour: {formatSpan(figures.data.start, figures.data.end)}.
        </p>
      )}
      {!hasHistory && <Note kind="info">These are the figures since weir has started.</Note>}
      {rows.length === 0 && !known.isLoading ? (
        <p class="empty">There is no such namespace. The first check in a namespace creates it.</p>
      ) : (
        <SortedTable
          caption={`Namespaces: ${formatWhole(rows.length)}`}
          columns={columnsOf(live.minutes, rows.some(countsLeases))}
          rows={rows}
          keyOf={({ name = '' }) => name}
        />
      )}
    </>
  );
}

function checksOf({ allowed = 0, denied = 0 }: Partial<NamespaceTotals>): number {
  return allowed + denied;
}

type Row = Partial<NamespaceTotals>;

function columnsOf(minutes: readonly PastMinute[], hasLeases: boolean): Column<Row>[] {
  return [
    {
      name: 'Namespace',
      cell: ({ id, name = '' }) =>
        id === undefined ? (
          'all others'
        ) : (
          <a href={linkTo('namespaces', name)}>
            <Name text={name} />
          </a>
        ),
      value: ({ name }) => name,
    },
    ...figureColumns<Row>(formatShort, hasLeases),
    {
      name: 'Denied, last hour',
      cell: ({ name = '' }) => <DeniedSparkline minutes={minutes} name={name} />,
    },
    {
      name: 'Id',
      cell: ({ id }) =>
        id !== undefined && (
          <span class="with-copy">
            <code>{id}</code>
            <Copy text={id} />
          </span>
        ),
    },
  ];
}
