/** The denied checks of a namespace in the last hour by minute, as bars in a cell of a table. */

import { deniedByMinute } from './decisions.ts';
import { formatShort } from './format.ts';
import type { PastMinute } from './minutes.ts';

const BAR_PX = 2;
const HEIGHT = 20;

/**
 * All namespaces have one scale, that of square roots, so that few denials are visible beside many.
 * The server sends minutes for the first namespaces only.
 */
export function DeniedSparkline({
  minutes,
  name,
}: {
  minutes: readonly PastMinute[];
  name: string;
}) {
  const values = deniedByMinute(minutes, name);
  if (values === undefined) return '–';
  const highest = Math.max(...values);
  const all = minutes.flatMap(({ decisions }) => [...(decisions?.byNamespace.values() ?? [])]);
  const top = all.reduce((most, { denied }) => Math.max(most, denied), 1);
  const total = values.reduce((sum, value) => sum + value, 0);
  const worst = total === 0 ? '' : `, ${formatShort(highest)} in the worst minute`;
  const label = `${formatShort(total)} denied in the last hour${worst}`;
  const width = values.length * BAR_PX;
  const bars = values.flatMap((value, i) => {
    if (value === 0) return [];
    const height = Math.max(1, Math.round(Math.sqrt(value / top) * HEIGHT));
    return [`M${i * BAR_PX} ${HEIGHT}v-${height}h${BAR_PX}v${height}z`];
  });
  return (
    <svg
      class={`sparkline denied ${total === 0 ? 'none' : ''}`}
      role="img"
      aria-label={label}
      width={width}
      height={HEIGHT}
    >
      <title>{label}</title>
      <line x1="0" x2={width} y1={HEIGHT} y2={HEIGHT} />
      <path class="area" d={bars.join('')} />
    </svg>
  );
}
