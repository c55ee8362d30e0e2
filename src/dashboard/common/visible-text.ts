/**
 * Makes all characters of a text visible. Those that are invisible, or that change the direction of
 * text, are named by their code points, so that no identifier can look like another one, or like a
 * part of the page.
 */

/** Control, format and private characters, unpaired surrogates, blanks, ignorable characters. */
const HIDDEN = /[\p{C}\p{Z}\p{Default_Ignorable_Code_Point}]/u;

/** A visible text, or the code point of a hidden character, as in U+202E. */
export type Part = { text: string } | { codePoint: string };

/** Splits a text into visible parts and hidden characters. A blank between two words is visible. */
export function visibleParts(text: string): Part[] {
  const characters = [...text];
  const isVisible = (i: number) => characters[i] !== undefined && !HIDDEN.test(characters[i]);
  const parts: Part[] = [];
  let visible = '';
  for (const [i, character] of characters.entries()) {
    const isWordBlank = character === ' ' && isVisible(i - 1) && isVisible(i + 1);
    if (isVisible(i) || isWordBlank) {
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
