/**
 * A Lua script that Redis runs. The connection runs it by its hash, and loads it where the server
 * does not have it: a restarted server, a new primary, or one whose scripts were flushed. Scripts
 * are written in `.lua` files, which may include others by a line `--#include <file>`.
 */

import { createHash } from 'node:crypto';

export interface Script {
  readonly name: string;
  readonly text: string;
  /** By which EVALSHA knows it. */
  readonly sha1: string;
  /** Whether it changes nothing: it may run twice, and where writes are refused. */
  readonly readsOnly: boolean;
}

export function defineScript(name: string, text: string, { readsOnly = false } = {}): Script {
  const sha1 = createHash('sha1').update(text).digest('hex');
  return { name, text, sha1, readsOnly };
}

const INCLUDE = /^ *--#include (\S+)\n/gm;
/** Lines without code, and what indents the others. */
const NO_CODE = /^ *(?:--.*)?\n|^ +/gm;
/** Texts, in which a name stands for itself, and names of constants. */
const TEXT_OR_CONSTANT = /'[^'\n]*'|\b[A-Z][A-Z0-9_]*\b/g;

/**
 * The text that Redis gets. It has no comments, so that a comment does not change the hash. Every
 * server keeps it in memory, so nothing is indented.
 * @param text a Lua file
 * @param files those that may be included, by name
 * @param constants that are written into the text: a local of Lua would take time in each call
 */
export function composeLua(
  text: string,
  files: Readonly<Record<string, string>> = {},
  constants: Readonly<Record<string, string | number | boolean>> = {},
  { readsOnly = false, allowsOom = false } = {},
): string {
  const flags = readsOnly ? ' flags=no-writes' : allowsOom ? ' flags=allow-oom' : '';
  const code = includeFiles(text, files).replace(NO_CODE, '');
  const written = code.replace(TEXT_OR_CONSTANT, (name) => {
    if (!Object.hasOwn(constants, name)) return name;
    const value = constants[name];
    return typeof value === 'string' ? `'${value}'` : String(value);
  });
  return `#!lua${flags}\n${written}`;
}

function includeFiles(text: string, files: Readonly<Record<string, string>>): string {
  return text.replace(INCLUDE, (_, name: string) => {
    const file = files[name];
    if (file === undefined) throw new Error(`a script includes ${name}, which does not exist`);
    return includeFiles(file, files);
  });
}
