/** Follows README.md and docs/getting-started.md as a reader does, and keeps README.md short. */

import { readFileSync } from 'node:fs';
import { describe, expect, test } from 'vitest';
import { annotations, environmentName, SETTING_NAMES } from '../../../src/config/schema.ts';
import { wordCount } from '../../support/markdown.ts';
import { isMissing } from '../../support/programs/program.ts';
import { followPage, PAGE_TIMEOUT_MS } from './page-follower.ts';
import { canRunPages } from './page-runner.ts';
import { type PageStep, stepsOf } from './page-steps.ts';

const README = readPage('README.md');

function readPage(path: string): string {
  return readFileSync(new URL(`../../../${path}`, import.meta.url), 'utf8');
}

describe.skipIf(!canRunPages())('a reader can follow', () => {
  const cases = [
    // The one page whose packages are installed as its reader installs them.
    { path: 'README.md', isInstalled: false, isSkipped: isMissing('nginx', '-v') },
    { path: 'docs/getting-started.md', isInstalled: true, isSkipped: false },
  ];
  for (const { path, isInstalled, isSkipped } of cases) {
    test(`every command of ${path}`, () => {
      const isOmitted = (step: PageStep) => step.kind === 'run' && step.notRun !== undefined;
      expect(stepsOf(readPage(path)).filter(isOmitted)).toEqual([]);
    });

    test.skipIf(isSkipped)(
      `${path} in a fresh clone, and sees what it shows`,
      () => followPage(path, { isInstalled }),
      PAGE_TIMEOUT_MS,
    );
  }
});

describe('README.md', () => {
  const wordsBefore = (text: string) => {
    expect(README).toContain(text);
    return wordCount(README.slice(0, README.indexOf(text)));
  };

  test('is a first page: 250 lines, 2 500 words', () => {
    expect(README.trimEnd().split('\n').length).toBeLessThanOrEqual(250);
    expect(wordCount(README)).toBeLessThanOrEqual(2_500);
  });

  test('shows how to start within 250 words, and a protected route within 900', () => {
    expect(wordsBefore('npm ci && npm start')).toBeLessThanOrEqual(250);
    expect(wordsBefore('nginx -p nginx')).toBeLessThanOrEqual(900);
  });

  test('names the most used settings with their declared defaults', () => {
    const rows = [...README.matchAll(/^\| `(WEIR_\w+)` \| (none|`.*?`) \|/gm)];
    const variables = SETTING_NAMES.map(environmentName);
    expect(rows).toHaveLength(6);
    for (const [, variable, shown] of rows) {
      const { default: initial } = annotations(SETTING_NAMES[variables.indexOf(variable)]);
      expect([variable, shown]).toEqual([
        variable,
        initial === undefined ? 'none' : `\`${initial}\``,
      ]);
    }
  });

  test('has figures that docs/benchmarks.md shows with the same command', () => {
    const benchmarks = readPage('docs/benchmarks.md');
    const rows = [...README.matchAll(/^\| ([\d. ]+)(?: ns)? \| .* \| `(npm run bench.*?)` \|/gm)];
    expect(rows).toHaveLength(3);
    for (const [, shown, command] of rows) {
      const figure = shown.trim().replaceAll(' ', ',');
      const [, output = ''] = benchmarks.split(`\`${command}\``);
      expect([command, output.split('\n## ')[0]]).toEqual([
        command,
        expect.stringContaining(figure),
      ]);
    }
  });
});
