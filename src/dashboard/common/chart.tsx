/**
 * Charts over time, drawn by uPlot on a canvas. Each has a text that says what it shows, and the
 * figures as a table.
 */

import { useEffect, useRef, useState } from 'preact/hooks';
import uPlot from 'uplot';
import { Table } from './controls.tsx';
import { Time } from './text.tsx';

export interface ChartSeries {
  name: string;
  /** The name of a color of the style. */
  color: 'allowed' | 'denied' | 'first' | 'second' | 'third';
  values: readonly (number | null)[];
}

interface ChartProps {
  title: string;
  /** What the points are, in the legend. */
  note?: string | undefined;
  /** Unix times in ms, ascending. */
  times: readonly number[];
  series: readonly ChartSeries[];
  format: (value: number) => string;
  /** Of the values at the axis, if they have another form. */
  formatAxis?: (value: number) => string;
  /** The range of time in ms, where it is more than that of the times. */
  range?: readonly [number, number];
}

const HEIGHT = 200;
const TABLE_ROWS_MAX = 60;

/** A color of the style, as a canvas needs it. */
function colorOf(element: Element, name: string): string {
  return getComputedStyle(element).getPropertyValue(`--chart-${name}`);
}

function optionsOf(element: HTMLElement, props: ChartProps): uPlot.Options {
  const { series, format, formatAxis = format } = props;
  const [text, line] = ['text', 'line'].map((name) => colorOf(element, name));
  const axis = {
    stroke: text,
    grid: { stroke: line, width: 1 },
    ticks: { stroke: line, width: 1 },
  };
  return {
    width: element.clientWidth,
    height: HEIGHT,
    legend: { show: false },
    cursor: { drag: { x: false, y: false } },
    scales: {
      x: { range: (_plot, min, max) => rangeOf(props, min, max) },
      y: { range: (_plot, _min, max) => [0, max > 0 ? max * 1.1 : 1] },
    },
    axes: [
      { ...axis, space: 72, values: formatTicks },
      { ...axis, size: 64, values: (_plot, splits) => splits.map((value) => formatAxis(value)) },
    ],
    series: [
      {},
      ...series.map(({ name, color }) => {
        const stroke = colorOf(element, color);
        return {
          label: name,
          stroke,
          width: 1.5,
          points: { show: hasFewPoints, filter: isolatedPoints },
        };
      }),
    ],
  };
}

/** A line needs two points. */
function hasFewPoints({ data }: uPlot): boolean {
  return data[0].length < 3;
}

/** The points between two gaps, which no line shows. */
function isolatedPoints({ data }: uPlot, series: number, showsAll: boolean): number[] | null {
  if (showsAll) return null;
  const values = data[series];
  const isGap = (index: number) => values[index] === null || values[index] === undefined;
  return [...values.keys()].filter((i) => !isGap(i) && isGap(i - 1) && isGap(i + 1));
}

const DAY_S = 86_400;
const MINUTE_S = 60;

/** The texts of the axis of time, by the distance of its ticks. */
function formatTicks(_plot: uPlot, ticks: number[], _axis: number, _space: number, stepS: number) {
  const format = new Intl.DateTimeFormat(
    undefined,
    stepS >= DAY_S
      ? { month: 'short', day: 'numeric' }
      : {
          hourCycle: 'h23',
          hour: '2-digit',
          minute: '2-digit',
          ...(stepS < MINUTE_S && { second: '2-digit' }),
        },
  );
  return ticks.map((tick) => format.format(tick * 1_000));
}

function rangeOf({ range }: ChartProps, min: number, max: number): [number, number] {
  return range === undefined ? [min, max] : [range[0] / 1_000, range[1] / 1_000];
}

function dataOf({ times, series }: ChartProps): uPlot.AlignedData {
  return [times.map((ms) => ms / 1_000), ...series.map(({ values }) => [...values])];
}

/** Counts the changes between light and dark, for which a canvas must be drawn again. */
function useThemeChanges(): number {
  const [changes, setChanges] = useState(0);
  useEffect(() => {
    const changed = () => setChanges((count) => count + 1);
    const media = matchMedia('(prefers-color-scheme: dark)');
    const observer = new MutationObserver(changed);
    media.addEventListener('change', changed);
    observer.observe(document.documentElement, { attributeFilter: ['data-theme'] });
    return () => {
      media.removeEventListener('change', changed);
      observer.disconnect();
    };
  }, []);
  return changes;
}

export function Chart(props: ChartProps) {
  const { title, note, times, series, format } = props;
  const ref = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot>(null);
  const latest = useRef(props);
  latest.current = props;
  const [isTableOpen, setTableOpen] = useState(false);
  const [cursor, setCursor] = useState<number>();
  const theme = useThemeChanges();
  const names = series.map(({ name }) => name).join('\n');

  useEffect(() => {
    const element = ref.current!;
    const options = optionsOf(element, latest.current);
    const rangeHook = (_plot: uPlot, min: number, max: number) => rangeOf(latest.current, min, max);
    const created = new uPlot(
      {
        ...options,
        scales: { ...options.scales, x: { range: rangeHook } },
        hooks: { setCursor: [({ cursor: { idx } }) => setCursor(idx ?? undefined)] },
      },
      dataOf(latest.current),
      element,
    );
    plot.current = created;
    const observer = new ResizeObserver(() => {
      created.setSize({ width: element.clientWidth, height: HEIGHT });
    });
    observer.observe(element);
    return () => {
      observer.disconnect();
      created.destroy();
      plot.current = null;
    };
  }, [theme, names]);
  useEffect(() => plot.current?.setData(dataOf(props)), [times, series]);

  const shown = cursor ?? times.length - 1;
  const valueAt = (values: readonly (number | null)[], index: number) => {
    const value = values[index];
    return value === null || value === undefined ? '–' : format(value);
  };
  const description = series.map(({ name, values }) => `${name} ${valueAt(values, shown)}`);
  return (
    <figure class="chart">
      <figcaption>
        <h3>{title}</h3>
        <ul class="legend">
          {series.map(({ name, color, values }) => (
            <li key={name}>
              <span class={`swatch ${color}`} />
              {name} <b>{valueAt(values, shown)}</b>
            </li>
          ))}
          {note !== undefined && <li>{note}</li>}
          {times[shown] !== undefined && cursor !== undefined && (
            <li>
              <Time ms={times[shown]} />
            </li>
          )}
        </ul>
      </figcaption>
      <div class="plot" ref={ref} role="img" aria-label={`${title}: ${description.join(', ')}`} />
      <details onToggle={(event) => setTableOpen(event.currentTarget.open)}>
        <summary>Figures as a table</summary>
        {isTableOpen && (
          <Table caption={title} columns={['Time', ...series.map(({ name }) => `${name}#`)]}>
            {[...times.keys()]
              .slice(-TABLE_ROWS_MAX)
              .toReversed()
              .map((index) => (
                <tr key={times[index]}>
                  <td>
                    <Time ms={times[index]} />
                  </td>
                  {series.map(({ name, values }) => (
                    <td key={name} class="number">
                      {valueAt(values, index)}
                    </td>
                  ))}
                </tr>
              ))}
          </Table>
        )}
      </details>
    </figure>
  );
}
