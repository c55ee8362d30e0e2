/**
 * Charts over time as SVG: stacked areas or lines, in steps as wide as what was counted. A drag, or
 * Shift with arrow keys, selects a time. Each has a text that says what it shows, and a table.
 */

import { useEffect, useLayoutEffect, useRef, useState } from 'preact/hooks';
import type { Span } from './buckets.ts';
import { logarithmicTicks, timeTicks, valueTicks } from './chart-ticks.ts';
import { Table } from './controls.tsx';
import { formatSpan, formatTick, formatTime } from './format.ts';

/** What a color means, on all pages. The style has a property of each name. */
type Meaning = 'allowed' | 'denied' | 'p50' | 'p99' | 'p999';

export interface ChartSeries {
  name: string;
  meaning: Meaning;
  /** null where there is none. */
  values: readonly (number | null)[];
}

interface ChartProps {
  title: string;
  /** What the buckets are, beside the title. */
  note: string;
  /** Ascending, without overlaps. */
  buckets: readonly Span[];
  series: readonly ChartSeries[];
  /** Whether values add up: areas on each other. */
  isStacked?: boolean;
  /** Whether the axis of values is logarithmic. All values are above 0 then. */
  isLogarithmic?: boolean;
  format: (value: number) => string;
  /** Of the values at the axis, if they have another form. */
  formatAxis?: (value: number) => string;
  /** The time that the chart shows. */
  span: Span;
  onZoom: (span: Span) => void;
}

const HEIGHT = 200;
const MARGIN = { left: 52, right: 8, top: 8, bottom: 22 };
const TABLE_ROWS_MAX = 60;
/** A shorter drag is a click. */
const DRAG_MIN_PX = 6;
/** Between neighbours that are not quite adjacent. */
const GAP_MIN_MS = 2_500;
const TICK_WIDTH = 90;
const VALUE_TICKS = 4;
const PAGE_BUCKETS = 10;
const SECOND_MAX_MS = 2_500;

/** A selection that is not finished. Both are times. */
interface Selection {
  anchor: number;
  head: number;
}

/** The lower and upper bound of each value, on which the next series stands. */
interface Layer extends ChartSeries {
  bounds: readonly ([low: number, high: number] | null)[];
}

function layersOf(series: readonly ChartSeries[], isStacked: boolean): Layer[] {
  const sums: number[] = [];
  return series.map((one) => ({
    ...one,
    bounds: one.values.map((value, i) => {
      if (value === null) return null;
      const low = isStacked ? (sums[i] ?? 0) : 0;
      sums[i] = low + value;
      return [low, low + value];
    }),
  }));
}

/** The indexes of neighbours that are shown, without the gaps between them. */
function runsOf(buckets: readonly Span[], isShown: (index: number) => boolean): number[][] {
  const runs: number[][] = [];
  for (const i of buckets.keys()) {
    if (!isShown(i)) continue;
    const run = runs.at(-1);
    const isNext = run?.at(-1) === i - 1 && buckets[i].start - buckets[i - 1].end < GAP_MIN_MS;
    if (run !== undefined && isNext) run.push(i);
    else runs.push([i]);
  }
  return runs;
}

function useWidth() {
  const ref = useRef<HTMLDivElement>(null);
  const [width, setWidth] = useState(0);
  useLayoutEffect(() => {
    const element = ref.current!;
    setWidth(element.clientWidth);
    const observer = new ResizeObserver(() => setWidth(element.clientWidth));
    observer.observe(element);
    return () => observer.disconnect();
  }, []);
  return { ref, width };
}

export function Chart(props: ChartProps) {
  const { title, note, buckets, series, format, span, onZoom } = props;
  const { ref, width } = useWidth();
  const [cursor, setCursor] = useState<number>();
  const [selection, setSelection] = useState<Selection>();
  const drag = useRef<{ fromPx: number }>(undefined);
  const cancel = () => {
    drag.current = undefined;
    setSelection(undefined);
  };
  const isSelecting = selection !== undefined;
  useEffect(() => {
    if (!isSelecting) return;
    const onKey = ({ key }: KeyboardEvent) => key === 'Escape' && cancel();
    addEventListener('keydown', onKey);
    return () => removeEventListener('keydown', onKey);
  }, [isSelecting]);

  const plotWidth = Math.max(1, width - MARGIN.left - MARGIN.right);
  const indexAt = (ms: number) => buckets.findLastIndex(({ start }) => start <= ms);
  const bucketAt = (ms: number): Span | undefined => {
    const bucket = buckets[indexAt(ms)];
    return bucket !== undefined && ms <= bucket.end ? bucket : undefined;
  };
  const timeAt = (event: PointerEvent): number => {
    const px = event.clientX - ref.current!.getBoundingClientRect().left - MARGIN.left;
    const share = Math.min(1, Math.max(0, px / plotWidth));
    return span.start + share * (span.end - span.start);
  };
  /** Whole buckets, so that figures of the selection are those that it shows. */
  const selectedSpan = ({ anchor, head }: Selection): Span => {
    const [low, high] = anchor < head ? [anchor, head] : [head, anchor];
    return {
      start: Math.max(span.start, bucketAt(low)?.start ?? low),
      end: Math.min(span.end, bucketAt(high)?.end ?? high),
    };
  };
  const select = () => {
    if (selection !== undefined) onZoom(selectedSpan(selection));
    cancel();
    setCursor(undefined);
  };

  const onPointerMove = (event: PointerEvent) => {
    const ms = timeAt(event);
    setCursor(ms);
    if (drag.current === undefined) return;
    const isDrag = Math.abs(event.clientX - drag.current.fromPx) >= DRAG_MIN_PX;
    if (isDrag || isSelecting) setSelection((was) => was && { ...was, head: ms });
  };
  const onPointerDown = (event: PointerEvent) => {
    if (event.button !== 0) return;
    drag.current = { fromPx: event.clientX };
    (event.currentTarget as Element).setPointerCapture(event.pointerId);
    const ms = timeAt(event);
    setCursor(ms);
    setSelection({ anchor: ms, head: ms });
  };
  const onPointerUp = (event: PointerEvent) => {
    const { current } = drag;
    if (current === undefined) return;
    if (Math.abs(event.clientX - current.fromPx) >= DRAG_MIN_PX) select();
    else cancel();
  };

  const selected =
    selection && selection.anchor !== selection.head ? selectedSpan(selection) : undefined;
  const shown = cursor === undefined ? undefined : bucketAt(cursor);
  const shownIndex = shown === undefined ? buckets.length - 1 : buckets.indexOf(shown);
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.key === 'Enter') return select();
    const last = buckets.length - 1;
    const target = {
      ArrowLeft: shownIndex - 1,
      ArrowRight: shownIndex + 1,
      PageDown: shownIndex - PAGE_BUCKETS,
      PageUp: shownIndex + PAGE_BUCKETS,
      Home: 0,
      End: last,
    }[event.key];
    if (target === undefined) return;
    event.preventDefault();
    const middleOf = (index: number) => {
      const { start, end } = buckets[Math.min(last, Math.max(0, index))];
      return (start + end) / 2;
    };
    const head = middleOf(cursor === undefined && !event.shiftKey ? shownIndex : target);
    setCursor(head);
    const anchor = selection?.anchor ?? middleOf(shownIndex);
    setSelection(event.shiftKey ? { anchor, head } : undefined);
  };

  const valueAt = (values: readonly (number | null)[], index: number) => {
    const value = values[index] ?? null;
    return value === null ? '–' : format(value);
  };
  const textAt = (index: number) => {
    return series.map(({ name, values }) => `${name} ${valueAt(values, index)}`).join(', ');
  };
  const isEmpty = buckets.length === 0;
  return (
    <figure class="chart">
      <figcaption>
        <h3>
          {title} {!isEmpty && <small>{note}</small>}
        </h3>
        <ul class="legend">
          {series.map(({ name, meaning, values }) => (
            <li key={name}>
              <span class={`swatch ${meaning}`} />
              {name} <b>{valueAt(values, shownIndex)}</b>
            </li>
          ))}
          {!isEmpty && <li>{timeText(buckets[shownIndex])}</li>}
        </ul>
      </figcaption>
      <div class="plot" ref={ref}>
        {width > 0 && (
          <Drawing
            {...props}
            width={width}
            plotWidth={plotWidth}
            label={`${title}: ${textAt(shownIndex)}`}
            cursor={shown && (shown.start + shown.end) / 2}
            selected={selected}
          />
        )}
        {isEmpty && <p class="no-figures">No figures of this time</p>}
        {!isEmpty && (
          <div
            class="cursor"
            role="slider"
            tabIndex={0}
            aria-label={`${title}: arrow keys go through the time, Shift selects, Enter zooms in`}
            aria-valuemin={0}
            aria-valuemax={buckets.length - 1}
            aria-valuenow={shownIndex}
            aria-valuetext={`${timeText(buckets[shownIndex])}: ${textAt(shownIndex)}`}
            onPointerMove={onPointerMove}
            onPointerDown={onPointerDown}
            onPointerUp={onPointerUp}
            onPointerCancel={cancel}
            onPointerLeave={() => setCursor(undefined)}
            onKeyDown={onKeyDown}
            onBlur={() => {
              cancel();
              setCursor(undefined);
            }}
          />
        )}
        {cursor !== undefined && (
          <Tooltip at={(cursor - span.start) / (span.end - span.start)}>
            <b>{timeText(selected ?? shown ?? { start: cursor, end: cursor })}</b>
            {selected === undefined && shown === undefined && 'No figures'}
            {selected === undefined &&
              shown !== undefined &&
              series.toReversed().map(({ name, meaning, values }) => (
                <span key={name}>
                  <span class={`swatch ${meaning}`} />
                  {name} <b>{valueAt(values, shownIndex)}</b>
                </span>
              ))}
          </Tooltip>
        )}
      </div>
      <FigureTable title={title} buckets={buckets} series={series} valueAt={valueAt} />
    </figure>
  );
}

function timeText({ start, end }: Span): string {
  return end - start <= SECOND_MAX_MS ? formatTime(end) : formatSpan(start, end);
}

/** @param at the share of the width at which it points; it stays inside the chart */
function Tooltip({ at, children }: { at: number; children: preact.ComponentChildren }) {
  const side = at < 0.5 ? { left: `calc(${at * 100}% + 4rem)` } : { right: `${104 - at * 100}%` };
  return (
    <div class="tooltip" aria-hidden="true" style={side}>
      {children}
    </div>
  );
}

interface DrawingProps extends ChartProps {
  width: number;
  plotWidth: number;
  label: string;
  cursor: number | undefined;
  selected: Span | undefined;
}

function Drawing(props: DrawingProps) {
  const { buckets, series, isStacked = false, isLogarithmic = false } = props;
  const { span, width, plotWidth, cursor, selected, format, formatAxis = format } = props;
  const plotHeight = HEIGHT - MARGIN.top - MARGIN.bottom;
  const bottom = MARGIN.top + plotHeight;
  const layers = layersOf(series, isStacked);
  const tops = layers.flatMap(({ bounds }) => bounds.flatMap((it) => it?.[1] ?? []));
  const axis = axisOf(tops, isLogarithmic);
  const x = (ms: number) => {
    const inside = Math.min(span.end, Math.max(span.start, ms));
    return round(MARGIN.left + ((inside - span.start) / (span.end - span.start)) * plotWidth);
  };
  const y = (value: number) => round(bottom - axis.shareOf(value) * plotHeight);
  const ticks = timeTicks(span, Math.max(2, plotWidth / TICK_WIDTH));
  /** From left to right in steps. */
  const stepsOf = (run: readonly number[], heightOf: (index: number) => number) => {
    return run.flatMap((i) => {
      const height = y(heightOf(i));
      return [`${x(buckets[i].start)},${height}`, `${x(buckets[i].end)},${height}`];
    });
  };
  return (
    <svg role="img" aria-label={props.label} width={width} height={HEIGHT}>
      {(buckets.length === 0 ? [0] : axis.ticks).map((value) => (
        <g key={value} class="tick">
          <line x1={MARGIN.left} x2={width - MARGIN.right} y1={y(value)} y2={y(value)} />
          <text x={MARGIN.left - 6} y={y(value)} dy="0.32em" text-anchor="end">
            {value === 0 ? '0' : formatAxis(value)}
          </text>
        </g>
      ))}
      {ticks.times
        .filter((ms) => x(ms) < width - TICK_WIDTH / 4)
        .map((ms) => (
          <text key={ms} class="tick" x={x(ms)} y={HEIGHT - 6} text-anchor="middle">
            {formatTick(ms, ticks.stepMs)}
          </text>
        ))}
      {/* The first series is on top: of lines, it is the one that most of the values are on. */}
      {layers.toReversed().map(({ name, meaning, bounds }) => {
        // An area of no height would hide the edge of the one below it.
        const isShown = (i: number) => {
          const of = bounds[i];
          return of !== null && (!isStacked || meaning === 'allowed' || of[1] > of[0]);
        };
        return runsOf(buckets, isShown).map((run) => {
          const edge = stepsOf(run, (i) => bounds[i]![1]);
          const bottoms = stepsOf(run, (i) => bounds[i]![0]);
          const key = `${name} ${run[0]}`;
          return (
            <g key={key} class={meaning}>
              {isStacked && (
                <path class="area" d={`M${edge.concat(bottoms.reverse()).join('L')}Z`} />
              )}
              <path class="edge" d={`M${edge.join('L')}`} />
            </g>
          );
        });
      })}
      {cursor !== undefined && (
        <line class="crosshair" x1={x(cursor)} x2={x(cursor)} y1={MARGIN.top} y2={bottom} />
      )}
      {selected !== undefined && (
        <rect
          class="selected"
          x={x(selected.start)}
          y={MARGIN.top}
          width={x(selected.end) - x(selected.start)}
          height={plotHeight}
        />
      )}
    </svg>
  );
}

/** The ticks of an axis, and the share of its height at which a value is. */
function axisOf(values: readonly number[], isLogarithmic: boolean) {
  const highest = Math.max(0, ...values);
  if (!isLogarithmic) {
    const ticks = valueTicks(highest, VALUE_TICKS);
    return { ticks, shareOf: (value: number) => value / ticks.at(-1)! };
  }
  if (highest === 0) return { ticks: [], shareOf: () => 0 };
  const ticks = logarithmicTicks(Math.min(...values), highest);
  const [first] = ticks;
  const decades = Math.log(ticks.at(-1)! / first);
  return { ticks, shareOf: (value: number) => Math.log(Math.max(first, value) / first) / decades };
}

/** A tenth of a pixel is fine enough. */
function round(px: number): number {
  return Math.round(px * 10) / 10;
}

interface FigureTableProps extends Pick<ChartProps, 'title' | 'buckets' | 'series'> {
  valueAt: (values: readonly (number | null)[], index: number) => string;
}

function FigureTable({ title, buckets, series, valueAt }: FigureTableProps) {
  const [isOpen, setOpen] = useState(false);
  return (
    <details onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>Figures as a table</summary>
      {isOpen && (
        <Table caption={title} columns={['Time', ...series.map(({ name }) => `${name}#`)]}>
          {[...buckets.keys()]
            .slice(-TABLE_ROWS_MAX)
            .toReversed()
            .map((index) => (
              <tr key={buckets[index].start}>
                <td>{timeText(buckets[index])}</td>
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
  );
}
