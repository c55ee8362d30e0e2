/** actionlint, with shellcheck, on the workflows. */

import { spawnSync } from 'node:child_process';
import { expect, test } from 'vitest';
import { isMissing } from '../support/gateway-process.ts';
import { goTool } from '../support/go-tool.ts';
import { IS_OUTSIDE_LONG } from '../support/test-scale.ts';

const ROOT = new URL('../..', import.meta.url).pathname;

const actionlint =
  IS_OUTSIDE_LONG && !isMissing('shellcheck', '--version')
    ? await goTool('github.com/rhysd/actionlint/cmd/actionlint', 'v1.7.12')
    : undefined;

test.skipIf(actionlint === undefined)('actionlint accepts the workflows and their scripts', () => {
  const options = { cwd: ROOT, encoding: 'utf8' } as const;
  const { status, stdout } = spawnSync(actionlint!, ['-no-color'], options);
  expect([status, stdout]).toEqual([0, '']);
});
