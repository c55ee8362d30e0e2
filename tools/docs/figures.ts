/** The table of the figures that the analytics keep. */

import { FIGURES } from '../../src/core/figures.ts';
import { inlineCode, markdownTable } from './markdown.ts';

export function figuresTable(): string {
  const rows = FIGURES.map(({ name, description }) => [inlineCode(name), description]);
  return markdownTable(['figure', 'what it is'], rows);
}
