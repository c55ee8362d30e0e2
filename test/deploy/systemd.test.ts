/** The unit of deploy/systemd. test/system/deploy checks it, and test/long runs it. */

import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { environmentName, SETTING_NAMES } from '../../src/config/schema.ts';
import { EXIT } from '../../src/core/exit.ts';

const ROOT = new URL('../..', import.meta.url).pathname;
const unit = readFileSync(join(ROOT, 'deploy/systemd/weir.service'), 'utf8');
const { bin, name } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8'));

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

test('the start fails as soon as weir has ended, and not after the wait', () => {
  expect(valuesOf('ExecStartPost')[0]).toMatch(/ health --wait \d+s --pid \$MAINPID$/);
  expect(valuesOf('ExecStartPre')).toEqual([]);
});

test('the unit does not restart weir after an invalid setting', () => {
  expect(valuesOf('RestartPreventExitStatus')).toEqual([String(EXIT.USAGE)]);
});
