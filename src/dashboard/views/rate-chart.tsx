/** The live decisions of a namespace, as a chart. */

import { useMemo } from 'preact/hooks';
import type { Snapshot } from '../../observe/dashboard/snapshot.ts';
import { Chart } from '../common/chart.tsx';
import { formatShort } from '../common/format.ts';
import { liveRange, sumOf } from '../common/live.ts';
import { visibleText } from '../common/visible-text.ts';

/** Stands for all namespaces: no namespace has an empty name. */
export const ALL = '';

/** The decisions of a snapshot in a second; null for the first snapshot. */
function perSecond(
  { namespaces, intervalMs }: Snapshot,
  field: 'allowed' | 'denied',
  chosen: string,
): number | null {
  if (intervalMs === 0) return null;
  const counted = chosen === ALL ? namespaces : namespaces.filter(({ name }) => name === chosen);
  return (sumOf(counted, field) * 1_000) / intervalMs;
}

/** The live rates of one namespace, or of all that the key may see. */
export function RateChart({
  history,
  namespace,
}: {
  history: readonly Snapshot[];
  namespace: string;
}) {
  const { times, series } = useMemo(() => {
    const valuesOf = (field: 'allowed' | 'denied') => {
      return history.map((snapshot) => perSecond(snapshot, field, namespace));
    };
    return {
      times: history.map(({ at }) => at),
      series: [
        { name: 'Allowed/s', color: 'allowed' as const, values: valuesOf('allowed') },
        { name: 'Denied/s', color: 'denied' as const, values: valuesOf('denied') },
      ],
    };
  }, [history, namespace]);
  const title = namespace === ALL ? 'All namespaces' : visibleText(namespace);
  return (
    <Chart
      title={title}
      times={times}
      series={series}
      format={formatShort}
      range={liveRange(history)}
    />
  );
}
