/** Texts from clients, with all characters visible, and times. */

import { formatTime, formatUtc } from './format.ts';
import { visibleParts } from './visible-text.ts';

/** A name that a client has chosen: an identifier, a namespace, the name of a key. */
export function Name({ text }: { text: string }) {
  if (text === '') return <em>(empty)</em>;
  return (
    <bdi class="name">
      {visibleParts(text).map((part, i) =>
        'text' in part ? (
          part.text
        ) : (
          <span key={i} class="hidden-character">
            {part.codePoint}
          </span>
        ),
      )}
    </bdi>
  );
}

/** The time at which something ends, which may have no end. */
export function End({ ms }: { ms: number | undefined }) {
  return ms === undefined ? 'never' : <Time ms={ms} />;
}

/** A time in the zone of the browser, with UTC as its title. */
export function Time({ ms }: { ms: number }) {
  return <time title={formatUtc(ms)}>{formatTime(ms)}</time>;
}
