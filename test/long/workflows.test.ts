/** actionlint, with shellcheck, on the workflows. */

import { spawnSync } from 'node:child_process';
import { expect, test } from 'vitest';
import { goTool } from '../support/programs/go-tool.ts';
import { isMissing } from '../support/programs/program.ts';

const ROOT = new URL('../..', import.meta.url).pathname;

const actionlint = !isMissing('shellcheck', '--version')
  ? await goTool('github.com/rhysd/actionlint/cmd/actionlint', 'v1.7.12')
  : undefined;

test.skipIf(actionlint === undefined)('actionlint accepts the workflows and their scripts', () => {
  const options = { cwd: ROOT, encoding: 'utf8' } as const;
  const { status, stdout } = spawnSync(actionlint!, ['-no-color'], options);
  expect([status, stdout]).toEqual([0, '']);
});
