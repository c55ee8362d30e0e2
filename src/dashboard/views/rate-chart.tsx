/** The decisions in a second as a chart: the last hour by minute, and the live seconds. */

import { useMemo } from 'preact/hooks';
import type { Snapshot } from '../../observe/dashboard/snapshot.ts';
import { Chart } from '../common/chart.tsx';
import { formatShort } from '../common/format.ts';
import { sumOf } from '../common/live.ts';
import { type PastMinute, pointsOf, timeOf } from '../common/minutes.ts';
import { visibleText } from '../common/visible-text.ts';

/** Stands for all namespaces: no namespace has an empty name. */
export const ALL = '';
/** What the points of a chart are. */
export const RESOLUTION = 'by minute, the live part by second';

interface Rates {
  allowed: number;
  denied: number;
}

/** null for a minute in which weir was down. */
function ratesOfMinute({ decisions }: PastMinute, chosen: string): Rates | null {
  if (decisions === undefined || decisions.ranMs === 0) return null;
  const { ranMs, byNamespace } = decisions;
  const counted = [...byNamespace].filter(([name]) => chosen === ALL || name === chosen);
  const rate = (field: keyof Rates) => {
    return (counted.reduce((sum, [, counts]) => sum + counts[field], 0) * 1_000) / ranMs;
  };
  return { allowed: rate('allowed'), denied: rate('denied') };
}

function ratesOfSecond({ namespaces, intervalMs }: Snapshot, chosen: string): Rates {
  const counted = chosen === ALL ? namespaces : namespaces.filter(({ name }) => name === chosen);
  const rate = (field: keyof Rates) => (sumOf(counted, field) * 1_000) / intervalMs;
  return { allowed: rate('allowed'), denied: rate('denied') };
}

interface RateChartProps {
  history: readonly Snapshot[];
  minutes: readonly PastMinute[];
  namespace: string;
}

/** The rates of one namespace, or of all that the key may see. */
export function RateChart({ history, minutes, namespace }: RateChartProps) {
  const { times, series, range } = useMemo(() => {
    const points = pointsOf(minutes, history, {
      minute: (minute) => ratesOfMinute(minute, namespace),
      second: (snapshot) => ratesOfSecond(snapshot, namespace),
    });
    const valuesOf = (field: keyof Rates) => points.map(({ value }) => value?.[field] ?? null);
    return {
      times: points.map(({ at }) => at),
      series: [
        { name: 'Allowed/s', color: 'allowed' as const, values: valuesOf('allowed') },
        { name: 'Denied/s', color: 'denied' as const, values: valuesOf('denied') },
      ],
      range: timeOf(points),
    };
  }, [history, minutes, namespace]);
  const title = namespace === ALL ? 'All namespaces' : visibleText(namespace);
  return (
    <Chart
      title={title}
      note={minutes.length > 0 ? RESOLUTION : undefined}
      times={times}
      series={series}
      format={formatShort}
      range={range}
    />
  );
}
