import { expect, test } from 'vitest';
import { TABLE_NAMES, TABLES } from '../../../src/registry/store/schema.ts';

test('the tables are those of stores and registries that exist, in the same positions', () => {
  const stored = ['keys', 'namespaces', 'overrides', 'audit', 'policies'];
  expect(TABLE_NAMES.slice(0, stored.length)).toEqual(stored);
  const versionOf = TABLE_NAMES.map((name) => [name, TABLES[name].since]);
  expect(Object.fromEntries(versionOf)).toMatchObject({
    ...{ keys: 1, namespaces: 1, overrides: 2, audit: 3, policies: 3 },
  });
});
