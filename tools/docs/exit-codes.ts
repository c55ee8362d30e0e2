/** The table of the exit codes of the command `weir`. */

import { EXIT_MEANINGS } from '../../src/core/exit.ts';
import { inlineCode, markdownTable } from './markdown.ts';

export function exitCodesTable(): string {
  const rows = Object.entries(EXIT_MEANINGS).map(([code, meaning]) => [inlineCode(code), meaning]);
  return markdownTable(['exit code', 'meaning'], rows);
}
