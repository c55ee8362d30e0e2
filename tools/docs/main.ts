/**
 * `npm run docs`: writes the generated documentation of the repository in the current directory.
 * With `--check` it writes nothing, names the files that are out of date, and exits with 1.
 */

import { GENERATED } from './generated.ts';
import { DocsError, findOutdated, renderDocs, writeDocs } from './generator.ts';

const USAGE = 'Usage:\n  npm run docs\n  npm run docs -- --check\n';

process.exitCode = await run(process.argv.slice(2));

async function run(args: readonly string[]): Promise<number> {
  const isCheck = args.length === 1 && args[0] === '--check';
  if (args.length > 0 && !isCheck) {
    process.stderr.write(USAGE);
    return 2;
  }
  const root = process.cwd();
  try {
    const texts = await renderDocs(root, GENERATED);
    const outdated = findOutdated(root, texts);
    if (!isCheck) writeDocs(root, texts, outdated);
    const verb = isCheck ? 'is out of date' : 'was written';
    for (const path of outdated) process.stdout.write(`${path} ${verb}\n`);
    return isCheck && outdated.length > 0 ? 1 : 0;
  } catch (error) {
    if (!(error instanceof DocsError)) throw error;
    process.stderr.write(`${error.message}\n`);
    return 1;
  }
}
