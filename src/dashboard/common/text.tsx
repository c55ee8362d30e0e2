/**
 * Texts from clients and times. Identifiers may contain anything: characters that are invisible or
 * change the direction of text are shown as their code points, so that no identifier can look like
 * another one, or like a part of the page.
 */

import { formatTime, formatUtc } from './format.ts';

/** Control, format and private characters, unpaired surrogates, blanks, ignorable characters. */
const HIDDEN = /[\p{C}\p{Z}\p{Default_Ignorable_Code_Point}]/u;

type Part = { text: string } | { codePoint: string };

/** Splits a text into visible parts and hidden characters. A blank between two words is visible. */
export function visibleParts(text: string): Part[] {
  const characters = [...text];
  const parts: Part[] = [];
  let visible = '';
  for (const [i, character] of characters.entries()) {
    const isWordBlank =
      character === ' ' &&
      i > 0 &&
      i < characters.length - 1 &&
      characters[i - 1] !== ' ' &&
      characters[i + 1] !== ' ';
    if (!HIDDEN.test(character) || isWordBlank) {
      visible += character;
      continue;
    }
    if (visible !== '') parts.push({ text: visible });
    visible = '';
    const code = character.codePointAt(0)!.toString(16).toUpperCase().padStart(4, '0');
    parts.push({ codePoint: `U+${code}` });
  }
  if (visible !== '') parts.push({ text: visible });
  return parts;
}

/** The same as text, for the names of controls. */
export function visibleText(text: string): string {
  return visibleParts(text)
    .map((part) => ('text' in part ? part.text : `[${part.codePoint}]`))
    .join('');
}

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

/** A time in the zone of the browser, with UTC as its title. */
export function Time({ ms }: { ms: number }) {
  return <time title={formatUtc(ms)}>{formatTime(ms)}</time>;
}
