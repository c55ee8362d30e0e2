/** The table of the fields of a policy. */

import { expect, test } from 'vitest';
import { POLICY_DEFAULTS, PolicySchema } from '../../../src/policies/policy.ts';
import { policyFieldsTable } from '../../../tools/docs/policies.ts';

const rows = policyFieldsTable().split('\n').slice(2);

test('each field of a policy has a row without an empty cell', () => {
  const names = Object.keys(PolicySchema.properties);
  expect(rows.map((row) => row.split('`')[1])).toEqual(names);
  for (const row of rows) {
    const cells = row.split(' | ').map((cell) => cell.replaceAll('|', '').trim());
    expect([row, cells.length, cells.includes('')]).toEqual([row, 4, false]);
  }
});

test('the rows have the defaults that policies get', () => {
  for (const [name, value] of Object.entries(POLICY_DEFAULTS)) {
    const row = rows.find((row) => row.startsWith(`| \`${name}\` |`));
    expect([name, row]).toEqual([name, expect.stringContaining(`| \`${value}\` |`)]);
  }
});
