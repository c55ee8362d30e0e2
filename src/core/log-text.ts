/**
 * Formats a log record as text: one line with time, level, message and fields, followed by the
 * indented stack of an error. A value cannot start a new line: line ends and characters that a
 * terminal interprets are escaped as in JSON.
 */

import { requirePackage } from './packages.ts';

const { levels } = requirePackage('pino');

/** Control characters, line ends, and marks that change the direction of text. */
const UNSAFE_CHARACTERS = /[\p{Cc}\p{Bidi_Control}\u2028\u2029]/gu;
/** Values that need no quotes. */
const UNQUOTED_VALUE = /^[\w.:/@+*,[\]-]+$/;

/** @param line a JSON object, as pino writes it */
export function formatRecord(line: string): string {
  const { time, level, msg, stack, err, ...fields } = JSON.parse(line);
  const { stack: errorStack = stack, ...error } = err ?? {};
  const allFields = Object.entries({ ...fields, ...prefixErrorFields(error) });
  const columns = [
    time,
    levels.labels[level].toUpperCase().padEnd('ERROR'.length),
    escaped(msg ?? ''),
    ...allFields.map(([name, value]) => `${quoted(name)}=${quoted(value)}`),
  ];
  const stackLines = typeof errorStack === 'string' ? errorStack.split(/\r?\n/) : [];
  const indented = stackLines.map((stackLine) => `    ${escaped(stackLine.trim())}\n`);
  return `${columns.join(' ')}\n${indented.join('')}`;
}

/** The fields of an error except its stack: message, type, code and others. */
function prefixErrorFields(error: object): Record<string, unknown> {
  return Object.fromEntries(Object.entries(error).map(([name, value]) => [`error.${name}`, value]));
}

function escaped(text: string): string {
  return text.replace(UNSAFE_CHARACTERS, (character) => {
    const inJson = JSON.stringify(character).slice(1, -1);
    if (inJson !== character) return inJson;
    return `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`;
  });
}

/** A value in quotes if it contains a blank, a `=` or another character that separates fields. */
function quoted(value: unknown): string {
  if (typeof value === 'string' && UNQUOTED_VALUE.test(value)) return value;
  return escaped(JSON.stringify(value));
}
