/** The files of the repository, and their imports. */

import { readdirSync, readFileSync } from 'node:fs';
import { dirname, join, relative } from 'node:path';

export const ROOT = new URL('../..', import.meta.url).pathname;

export const read = (path: string) => readFileSync(join(ROOT, path), 'utf8');

export const manifest = JSON.parse(read('package.json'));

/** What is not the repository's: made here, or git's own. */
const UNTRACKED = ['.git', 'node_modules', 'dist', 'weir-data'];
const ignored = [...read('.gitignore').matchAll(/^\/(.*?)\/?$/gm)].map(([, path]) => path);
const isIgnored = (path: string) => {
  return (
    path.includes('node_modules/') ||
    ignored.some((one) => path === one || path.startsWith(`${one}/`))
  );
};

export const tracked = readdirSync(ROOT, { withFileTypes: true })
  .filter(({ name }) => !UNTRACKED.includes(name))
  .flatMap((entry) => {
    if (!entry.isDirectory()) return [entry.name];
    return readdirSync(join(ROOT, entry.name), { recursive: true, withFileTypes: true })
      .filter((inner) => inner.isFile())
      .map((inner) => relative(ROOT, join(inner.parentPath, inner.name)))
      .filter((path) => !isIgnored(path));
  });

export interface CodeFile {
  path: string;
  text: string;
}

export const code: readonly CodeFile[] = tracked
  .filter((path) => /\.tsx?$/.test(path))
  .map((path) => ({ path, text: read(path) }));
export const sources = code.filter(({ path }) => path.startsWith('src/'));
export const luaFiles: readonly CodeFile[] = tracked
  .filter((path) => path.startsWith('src/') && path.endsWith('.lua'))
  .map((path) => ({ path, text: read(path) }));
export const tools = code.filter(({ path }) => path.startsWith('tools/'));

/** Runs in browsers. */
export const BROWSER_CODE = 'src/dashboard/';

export interface Import {
  from: string;
  to: string;
}

/** The imports of files in a file, those of types included. */
export function importsOf({ path, text }: CodeFile): Import[] {
  const found = text.matchAll(/(?:from|import\(|^import)\s*'(\.[^']+)'/gm);
  return [...found].map(([, to]) => ({ from: path, to: join(dirname(path), to) }));
}

export function asText({ from, to }: Import): string {
  return `${from} -> ${to}`;
}

/** A text in which comments are blank. */
export function withoutComments(text: string): string {
  return text.replace(COMMENT, '');
}

export function commentsIn(text: string): string[] {
  return [...text.matchAll(COMMENT)].map(([comment]) => comment);
}

const COMMENT = /\/\*[\s\S]*?\*\/|(?<=^|[\s;,{(])\/\/ .*$/gm;
