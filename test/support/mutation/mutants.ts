/**
 * Mutants of a checkout: a sample that a seed repeats, and the instrumented text of a file.
 * The same mutants come out for two checkouts with equal sources. A recorded mutant that the
 * sources no longer contain is an error.
 */

import { parseAst } from 'rolldown/parseAst';
import { seededRandom } from '../seeded-random.ts';
import { findMutations, type Mutation, REMOVED } from './candidates.ts';

export interface Mutant extends Mutation {
  readonly path: string;
  readonly line: number;
  /** The whole lines that contain `original`, and where it begins in them. */
  readonly context: string;
  readonly column: number;
}

export interface SourceFile {
  readonly path: string;
  readonly text: string;
}

/** The minimum of mutants of each folder, if the sample is large enough. */
const FOLDER_MIN = 20;

export const folderOf = (path: string) => path.split('/').slice(0, 2).join('/');
export const identityOf = ({ path, start, original, replacement }: Mutant) => {
  return JSON.stringify([path, start, original, replacement]);
};

/** At most `count` mutants without overlap. Each folder has its share of them, by candidates. */
export function sampleMutants(sources: readonly SourceFile[], count: number, seed: number) {
  const byFolder = new Map<string, Mutant[]>();
  for (const { path, text } of sources) {
    const mutants = findMutations(text).map((it) => describeMutant(path, text, it));
    byFolder.set(folderOf(path), [...(byFolder.get(folderOf(path)) ?? []), ...mutants]);
  }
  const sizes = [...byFolder.values()].map((mutants) => mutants.length);
  const quotas = shareOut(count, sizes);
  return [...byFolder.values()].flatMap((mutants, folder) => {
    const picked: Mutant[] = [];
    for (const mutant of shuffle(mutants, seed + folder)) {
      if (picked.length < quotas[folder] && !picked.some((it) => overlap(it, mutant))) {
        picked.push(mutant);
      }
    }
    return picked.sort((a, b) => a.path.localeCompare(b.path, 'en') || a.start - b.start);
  });
}

/** In proportion to `sizes`, but at least `FOLDER_MIN` each. */
function shareOut(count: number, sizes: readonly number[]): number[] {
  const total = sizes.reduce((sum, size) => sum + size, 0);
  const minimum = Math.min(FOLDER_MIN, Math.floor(count / sizes.length));
  const quotas = sizes.map((size) =>
    Math.max(minimum, Math.round((count * size) / Math.max(1, total))),
  );
  for (;;) {
    const excess = quotas.reduce((sum, quota) => sum + quota, 0) - count;
    if (excess === 0) return quotas;
    quotas[quotas.indexOf(Math.max(...quotas))] -= Math.sign(excess);
  }
}

function shuffle<T>(values: readonly T[], seed: number): T[] {
  const below = seededRandom(seed);
  const result = [...values];
  for (let i = result.length - 1; i > 0; i--) {
    const j = below(i + 1);
    [result[i], result[j]] = [result[j], result[i]];
  }
  return result;
}

function overlap(a: Mutant, b: Mutant): boolean {
  const isBefore = (x: Mutant, y: Mutant) => x.start + x.original.length <= y.start;
  return a.path === b.path && !isBefore(a, b) && !isBefore(b, a);
}

function describeMutant(path: string, text: string, mutation: Mutation): Mutant {
  const { start, original } = mutation;
  const from = text.lastIndexOf('\n', start) + 1;
  const end = text.indexOf('\n', start + original.length);
  const line = text.slice(0, start).split('\n').length;
  return { path, ...mutation, line, context: text.slice(from, end), column: start - from };
}

/**
 * The mutant where it now is in the text: at its offset, or where its lines occur, if they occur
 * once. Undefined if there is no such place.
 */
export function locateMutant(text: string, mutant: Mutant): Mutant | undefined {
  const { path, start, context, column } = mutant;
  const lines = `\n${context}\n`;
  if (text.startsWith(lines, start - column - 1)) return mutant;
  const at = text.indexOf(lines);
  if (at < 0 || text.indexOf(lines, at + 1) >= 0) return undefined;
  return describeMutant(path, text, { ...mutant, start: at + 1 + column });
}

/** The text in which each mutant, given by its number, can be switched on. Lines stay in place. */
export function instrument(
  text: string,
  mutants: ReadonlyMap<number, Mutation>,
  switchPath: string,
): string {
  let result = text;
  for (const [id, mutation] of [...mutants].toSorted(([, a], [, b]) => b.start - a.start)) {
    const { start, original, replacement } = mutation;
    const isRemoved = replacement === REMOVED;
    const both = isRemoved
      ? `{ if (!__mutant(${id})) { ${original} } }`
      : `(__mutant(${id}) ? (${replacement}) : (${original}))`;
    result = result.slice(0, start) + both + result.slice(start + original.length);
  }
  result = `import { isMutantActive as __mutant } from '${switchPath}'; ${result}`;
  parseAst(result, { lang: 'ts' });
  return result;
}
