/** `systemd-analyze` on the unit of deploy/systemd. */

import { spawnSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { isMissing } from '../../support/programs/program.ts';
import { removeDirectory, temporaryDirectory } from '../../support/server.ts';

const UNIT = new URL('../../../deploy/systemd/weir.service', import.meta.url).pathname;
const unit = readFileSync(UNIT, 'utf8');
const EXPOSURE_MAX_TENTHS = 20;

describe.skipIf(isMissing('systemd-analyze', '--version'))('systemd-analyze', () => {
  const directory = temporaryDirectory();
  const path = join(directory, 'weir.service');
  beforeAll(() => writeFileSync(path, unit.replaceAll('/usr/bin/node', process.execPath)));
  afterAll(() => removeDirectory(directory));
  const analyze = (...args: string[]) => {
    const { status, stdout, stderr } = spawnSync('systemd-analyze', args, { encoding: 'utf8' });
    return { status, output: stdout + stderr };
  };

  test('accepts the unit', () => {
    expect(analyze('verify', '--man=no', path)).toEqual({ status: 0, output: '' });
  });

  test('rates its exposure at 2 or less', () => {
    const threshold = `--threshold=${EXPOSURE_MAX_TENTHS}`;
    const { status, output } = analyze('security', '--offline=yes', threshold, path);
    expect([status, status === 0 ? '' : output]).toEqual([0, '']);
  });
});
