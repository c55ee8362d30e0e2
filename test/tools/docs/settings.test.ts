/** The tables of the settings. */

import { expect, test } from 'vitest';
import { helpText } from '../../../src/config/help.ts';
import {
  annotations,
  environmentName,
  flagName,
  SETTING_NAMES,
} from '../../../src/config/schema.ts';
import { settingsTables } from '../../../tools/docs/settings.ts';

test('each setting has a row with its default, and an entry in the help', () => {
  const rows = settingsTables().split('\n');
  for (const name of SETTING_NAMES) {
    const variable = environmentName(name);
    const row = rows.filter((line) => line.startsWith(`| \`${variable}\`<br>`));
    const { default: initial, defaultRule } = annotations(name);
    expect([name, row]).toEqual([
      name,
      [
        expect.stringContaining(
          ` | ${defaultRule ?? (initial === undefined ? 'none' : `\`${initial}\``)} | `,
        ),
      ],
    ]);
    expect(helpText()).toContain(variable);
    const isSecret = annotations(name).secret === true;
    expect([name, helpText().includes(`  ${flagName(name)}, `)]).toEqual([name, !isSecret]);
  }
});

test('no row depends on the machine that generates it', () => {
  for (const name of ['acceptors', 'workers'] as const) {
    expect([name, annotations(name).defaultRule]).toEqual([name, expect.any(String)]);
  }
});
