/** The scripts of `weir completion`. test/system/terminal runs them in real shells. */

import { expect, test } from 'vitest';
import { COMMANDS, HELP_ENTRIES } from '../../src/commands/run.ts';
import { annotations, flagName, SETTING_NAMES } from '../../src/config/schema.ts';
import { EXIT } from '../../src/core/exit.ts';
import { callWeir } from '../support/weir-command.ts';

const scriptOf = (shell: string) => callWeir('', ['completion', shell]);

test.each(['bash', 'zsh', 'fish'])(
  'the script for %s has all commands, subcommands, options and settings with a flag',
  async (shell) => {
    const { code, stdout, stderr } = await scriptOf(shell);
    expect([code, stderr]).toEqual([EXIT.OK, '']);
    const words = new Set(stdout.split(/[\s'()|:]+/));
    const missing = (names: readonly string[]) => names.filter((name) => !words.has(name));
    expect(missing(Object.keys(HELP_ENTRIES))).toEqual([]);
    for (const { load } of Object.values(COMMANDS)) {
      for (const [name, { options }] of Object.entries((await load()).subcommands)) {
        expect(missing([name, ...Object.keys(options).map((option) => `--${option}`)])).toEqual([]);
      }
    }
    for (const name of SETTING_NAMES) {
      expect([name, words.has(flagName(name))]).toEqual([name, annotations(name).secret !== true]);
    }
  },
);

test('another shell is an error that suggests a known one', async () => {
  expect(await scriptOf('fihs')).toEqual({
    code: EXIT.USAGE,
    stdout: '',
    stderr: 'weir: <shell> must be one of bash, zsh, fish; got "fihs"; did you mean fish?\n',
  });
});
