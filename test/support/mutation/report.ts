/** The texts of results: a table by folder, the surviving mutants, and a comparison of two runs. */

import { folderOf, identityOf, type Mutant } from './mutants.ts';

export interface MutantResult {
  readonly mutant: Mutant;
  readonly outcome: 'caught' | 'survived' | 'not executed';
  /** The test file and the test that caught it. */
  readonly caughtBy?: string;
  /** Failures that did not repeat. */
  readonly unstable: readonly string[];
  /** Test files that ran, of those that execute the mutant. */
  readonly filesRun: number;
  readonly filesExecuting: number;
  readonly seconds: number;
}

type Row = readonly (string | number)[];

function formatTable(rows: readonly Row[]): string {
  const widths = rows[0].map((_, column) => {
    return Math.max(...rows.map((row) => String(row[column]).length));
  });
  const format = (row: Row) => {
    return row.map((cell, i) =>
      i === 0 ? String(cell).padEnd(widths[i]) : `${cell}`.padStart(widths[i]),
    );
  };
  return rows.map((row) => `${format(row).join('  ')}\n`).join('');
}

function count(results: readonly MutantResult[]) {
  const caught = results.filter(({ outcome }) => outcome === 'caught').length;
  const unexecuted = results.filter(({ outcome }) => outcome === 'not executed').length;
  const share = results.length === 0 ? '-' : `${((100 * caught) / results.length).toFixed(1)} %`;
  return { total: results.length, caught, survived: results.length - caught, unexecuted, share };
}

const foldersOf = (results: readonly MutantResult[]) => {
  return [...new Set(results.map(({ mutant }) => folderOf(mutant.path)))].sort();
};
const inFolder = (results: readonly MutantResult[], folder: string) => {
  return results.filter(({ mutant }) => folder === 'all' || folderOf(mutant.path) === folder);
};

export function formatMutant({ path, line, original, replacement }: Mutant): string {
  const oneLine = (text: string) => {
    const joined = text.replace(/\s+/g, ' ');
    return joined.length > 80 ? `${joined.slice(0, 77)}...` : joined;
  };
  return `${path}:${line}  ${oneLine(original)}  ->  ${oneLine(replacement)}`;
}

export function formatReport(results: readonly MutantResult[]): string {
  const rows = [...foldersOf(results), 'all'].map((folder) => {
    const { total, caught, survived, unexecuted, share } = count(inFolder(results, folder));
    return [folder, total, caught, survived, unexecuted, share];
  });
  const head = ['folder', 'mutants', 'caught', 'survived', 'of these not executed', 'share caught'];
  const survivors = results.filter(({ outcome }) => outcome !== 'caught');
  const lines = survivors.map(({ mutant, outcome, filesRun, filesExecuting }) => {
    const ran =
      outcome === 'survived' ? `${filesRun} of ${filesExecuting} test files ran` : outcome;
    const text = mutant.context.split('\n')[0].trim();
    return `${formatMutant(mutant)}\n    ${text}\n    ${ran}\n`;
  });
  const unstable = results.flatMap(({ mutant, unstable }) => {
    return unstable.map((failure) => `${formatMutant(mutant)}\n    ${failure}\n`);
  });
  return [
    formatTable([head, ...rows]),
    ...(lines.length > 0 ? ['\nSurvived:\n', ...lines] : []),
    ...(unstable.length > 0 ? ['\nFailures that did not repeat:\n', ...unstable] : []),
  ].join('');
}

/** The mutants of both runs by folder, and those that only the first run caught. */
export function formatComparison(
  first: readonly MutantResult[],
  second: readonly MutantResult[],
): string {
  const later = new Map(second.map((result) => [identityOf(result.mutant), result]));
  const pairs = first.flatMap((before) => {
    const after = later.get(identityOf(before.mutant));
    return after === undefined ? [] : [{ before, after }];
  });
  const rows = [...foldersOf(pairs.map(({ before }) => before)), 'all'].map((folder) => {
    const [before, after] = (['before', 'after'] as const).map((run) => {
      return count(
        inFolder(
          pairs.map((pair) => pair[run]),
          folder,
        ),
      );
    });
    return [folder, before.total, before.caught, before.share, after.caught, after.share];
  });
  const lost = pairs.filter(({ before, after }) => {
    return before.outcome === 'caught' && after.outcome !== 'caught';
  });
  return [
    formatTable([['folder', 'mutants', 'before', 'share', 'after', 'share'], ...rows]),
    `\nCaught before, but not after: ${lost.length}\n`,
    ...lost.map(({ before: { mutant, caughtBy } }) => {
      return `${formatMutant(mutant)}\n    before: ${caughtBy}\n`;
    }),
  ].join('');
}
