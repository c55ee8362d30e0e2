/** Any JSON as readable text: names as words, times as times, lists and objects nested. */

import type { ComponentChildren } from 'preact';
import { formatDuration, formatWhole } from './format.ts';
import { Name, Time } from './text.tsx';

const TIME_NAMES =
  /(^|[a-z])(at|reset|time|start|end|expires|until|windowStart|createdAt|fullAt)$/i;
const DURATION_NAMES = /duration/i;
/** Unix times in ms from 2001 on. Smaller numbers are counts. */
const TIME_MIN = 1e12;

/** `overrideId` is "Override id". */
export function wordsOf(name: string): string {
  const words = name
    .replace(/([a-z0-9])([A-Z])/g, '$1 $2')
    .replaceAll('_', ' ')
    .toLowerCase();
  return words[0].toUpperCase() + words.slice(1);
}

export function JsonView({
  value,
  name = '',
}: {
  value: unknown;
  name?: string;
}): ComponentChildren {
  if (value === null || value === undefined) return <span class="none">none</span>;
  if (typeof value === 'boolean') return value ? 'yes' : 'no';
  if (typeof value === 'number') {
    if (TIME_NAMES.test(name) && value >= TIME_MIN) return <Time ms={value} />;
    if (DURATION_NAMES.test(name)) return formatDuration(value);
    return formatWhole(value);
  }
  if (typeof value === 'string') return <Name text={value} />;
  if (Array.isArray(value)) {
    if (value.length === 0) return <span class="none">none</span>;
    return (
      <ol class="json">
        {value.map((item, i) => (
          <li key={i}>
            <JsonView value={item} name={name} />
          </li>
        ))}
      </ol>
    );
  }
  return (
    <dl class="json">
      {Object.entries(value as object).map(([key, item]) => (
        <div key={key}>
          <dt>{wordsOf(key)}</dt>
          <dd>
            <JsonView value={item} name={key} />
          </dd>
        </div>
      ))}
    </dl>
  );
}
