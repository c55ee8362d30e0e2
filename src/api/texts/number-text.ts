/** Numbers in the text of the API documentation. */

import { AMOUNT_MAX } from '../../core/constants.ts';

/** From this number on, digits are in groups of three. */
const GROUPED_FROM = 10_000;

/** For example `65 536`, with narrow spaces that do not break the line. */
export function numberText(value: number): string {
  if (value === AMOUNT_MAX) return '2^53-1';
  if (value < GROUPED_FROM) return String(value);
  return String(value).replace(/\B(?=(?:\d{3})+$)/g, '\u202f');
}
