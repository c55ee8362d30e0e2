/** The unit of deploy/systemd. test/long/systemd.test.ts runs it. */

import { spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { environmentName, SETTING_NAMES } from '../../src/config/schema.ts';
import { EXIT } from '../../src/core/exit.ts';

const ROOT = new URL('../..', import.meta.url).pathname;
const unit = readFileSync(join(ROOT, 'deploy/systemd/weir.service'), 'utf8');
const { bin, name } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8'));
const hasSystemd = spawnSync('systemd-analyze', ['--version']).status === 0;
const EXPOSURE_MAX_TENTHS = 20;

const valuesOf = (key: string) => {
  return [...unit.matchAll(new RegExp(`^${key}=(.*)$`, 'gm'))].map(([, value]) => value);
};

test('every variable of the unit is a setting of weir', () => {
  const known = SETTING_NAMES.map(environmentName);
  const variables = valuesOf('Environment').map((value) => value.split('=')[0]);
  expect(variables.length).toBeGreaterThan(0);
  expect(variables.filter((variable) => !known.includes(variable))).toEqual([]);
});

test('the unit runs the program where npm install --prefix /opt/weir puts it', () => {
  const program = `/opt/weir/node_modules/${name}/${bin.weir}`;
  for (const key of ['ExecStart', 'ExecStartPost']) {
    expect(valuesOf(key).map((value) => value.includes(program))).toEqual([true]);
  }
});

test('the unit does not restart weir after an invalid setting', () => {
  expect(valuesOf('RestartPreventExitStatus')).toEqual([String(EXIT.USAGE)]);
});

describe.skipIf(!hasSystemd)('systemd-analyze', () => {
  const directory = mkdtempSync(join(tmpdir(), 'weir-unit-'));
  const path = join(directory, 'weir.service');
  beforeAll(() => writeFileSync(path, unit.replaceAll('/usr/bin/node', process.execPath)));
  afterAll(() => rmSync(directory, { recursive: true }));
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
