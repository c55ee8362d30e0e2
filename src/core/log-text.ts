/**
 * A record of the log as text for people: one line with time, level, message and fields, and behind
 * it, indented, the stack of an error. No text in a record can begin a line: characters that end
 * one, or that a terminal acts on, are escaped as in JSON.
 */

import { levels } from 'pino';

/** Control characters, line ends, and marks that change the direction of text. */
const UNSAFE_CHARACTERS = /[\p{Cc}\p{Bidi_Control}\u2028\u2029]/gu;
/** A value that needs no quotes. */
const UNQUOTED_VALUE = /^[\w.:/@+*,[\]-]+$/;

/** @param line as pino writes it: a JSON object */
export function formatRecord(line: string): string {
  const { time, level, msg, stack, err, ...fields } = JSON.parse(line);
  const { stack: errorStack = stack, ...error } = err ?? {};
  const named = Object.entries({ ...fields, ...prefixErrorFields(error) });
  const parts = [
    time,
    levels.labels[level].toUpperCase().padEnd('ERROR'.length),
    escaped(msg ?? ''),
    ...named.map(([name, value]) => `${quoted(name)}=${quoted(value)}`),
  ];
  const stackLines = typeof errorStack === 'string' ? errorStack.split(/\r?\n/) : [];
  const shown = stackLines.map((stackLine) => `    ${escaped(stackLine.trim())}\n`);
  return `${parts.join(' ')}\n${shown.join('')}`;
}

/** What an error has beside its stack: message, type, code and the like. */
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

/** A value in which neither blanks nor `=` can be taken for what is between fields. */
function quoted(value: unknown): string {
  if (typeof value === 'string' && UNQUOTED_VALUE.test(value)) return value;
  return escaped(JSON.stringify(value));
}
