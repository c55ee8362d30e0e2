/** The state of a thing: a word, a color and a shape, one for each meaning. */

import type { ComponentChildren } from 'preact';

export type Meaning = 'allowed' | 'denied' | 'warning' | 'neutral';

export function State({ meaning, children }: { meaning: Meaning; children: ComponentChildren }) {
  return <span class={`state ${meaning}`}>{children}</span>;
}
