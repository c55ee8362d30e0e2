/** Controls for the time that figures are shown for. The charts and tables of a page share it. */

import type { ComponentChildren } from 'preact';
import type { Span } from './buckets.ts';
import { formatSpan, formatTime } from './format.ts';
import { linkWith, navigate, type Route } from './router.ts';
import {
  DEFAULT_RANGE,
  fieldsOf,
  isChosen,
  RANGES,
  type Range,
  type TimeRange,
} from './time-range.ts';

/** Figures are counted by the hour, and are not shown for less. */
const LISTED: readonly Range[] = ['1h', '6h', '24h', '7d'];
/** A selection that ends so close to now follows the time. */
const NOW_MS = 10_000;

/** One of the usual times, as the address has it, and how to choose another one. */
export function rangeOfAddress(route: Route): [Range, (range: Range) => void] {
  const range = LISTED.find((one) => one === route.query.get('last')) ?? DEFAULT_RANGE;
  return [range, (last) => navigate(linkWith(route, { last: last === DEFAULT_RANGE ? '' : last }))];
}

interface RangeButtonsProps {
  choices?: readonly Range[];
  range: Range | undefined;
  onChoose: (range: Range) => void;
  children?: ComponentChildren;
}

/** The usual times, as buttons. */
export function RangeButtons({ choices = LISTED, range, onChoose, children }: RangeButtonsProps) {
  return (
    <fieldset class="time-bar">
      <legend>Time</legend>
      {choices.map((choice) => (
        <button
          key={choice}
          type="button"
          aria-pressed={choice === range}
          onClick={() => onChoose(choice)}
        >
          {RANGES[choice].text}
        </button>
      ))}
      {children}
    </fieldset>
  );
}

function chooseTime(route: Route, time: TimeRange): void {
  navigate(linkWith(route, { last: '', from: '', to: '', ...fieldsOf(time) }));
}

/** Chooses a part of the time that is shown. */
export function zoom(route: Route, time: TimeRange, { start, end }: Span): void {
  const isLive = time.isLive && end >= time.end - NOW_MS;
  chooseTime(route, { start: Math.floor(start), end: Math.ceil(end), isLive });
}

interface TimeBarProps {
  route: Route;
  time: TimeRange;
  choices: readonly Range[];
}

/** Chooses the time of a page. */
export function TimeBar({ route, time, choices }: TimeBarProps) {
  const { start, end, isLive } = time;
  const choose = (last: Range) => chooseTime(route, { ...time, last });
  return (
    <RangeButtons choices={choices} range={time.last} onChoose={choose}>
      {isChosen(time) && (
        <>
          <output>{isLive ? `${formatTime(start)} – now` : formatSpan(start, end)}</output>
          <button type="button" onClick={() => choose(DEFAULT_RANGE)}>
            Reset zoom
          </button>
        </>
      )}
    </RangeButtons>
  );
}
