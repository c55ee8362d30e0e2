/** What graphs show as vertical lines: events after which other values are expected. */

import { select } from './panel.ts';

export interface Annotation {
  name: string;
  color: string;
  /** Its values are Unix times in ms. */
  expr: string;
  /** With labels, as `{{instance}}`. */
  text: string;
}

const STARTED = select('process_start_time_seconds');
/** A start reads the policies too. Times of two clocks in seconds differ by less. */
const RELOAD_MIN_S = 5;

export const ANNOTATIONS: readonly Annotation[] = [
  { name: 'Start', color: 'blue', expr: `${STARTED} * 1000`, text: '{{instance}} has started' },
  {
    name: 'Reload of policies',
    color: 'purple',
    expr:
      `(${select('weir_policies_loaded_timestamp_seconds')} > ` +
      `${STARTED} + ${RELOAD_MIN_S}) * 1000`,
    text: '{{instance}} has read its policies again',
  },
];
