/** The table and the sections of the errors of the API. A section is named after the code. */

import { ERRORS, type ErrorCode, type ErrorKind } from '../../src/core/errors.ts';
import { inlineCode, markdownTable } from './markdown.ts';

const ENTRIES: readonly [ErrorCode, ErrorKind][] = Object.entries(ERRORS) as [
  ErrorCode,
  ErrorKind,
][];

export function errorsTable(): string {
  const rows = ENTRIES.map(([code, { status, inV2, title }]) => {
    const number = status.slice(0, 3);
    return [`[${inlineCode(code)}](#${code.toLowerCase()})`, number, inV2 ?? number, title];
  });
  return markdownTable(['code', 'status in v1', 'status in v2', 'meaning'], rows);
}

export function errorSections(): string {
  return ENTRIES.map(([code]) => `### ${code}\n\n${errorText(code)}`).join('\n\n');
}

/** Without a heading. */
export function errorText(code: ErrorCode): string {
  const { status, inV2, title, causes, remedy }: ErrorKind = ERRORS[code];
  const statuses = inV2 === undefined ? '' : ` Status in v2: ${inV2}.`;
  const list = causes.map((cause) => `- ${cause}`).join('\n');
  return `HTTP ${status}. ${title}${statuses}\n\nCauses:\n\n${list}\n\nRemedy: ${remedy}`;
}
