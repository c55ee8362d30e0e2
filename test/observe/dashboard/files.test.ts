import { existsSync, readdirSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';

/** All files of the dashboard as they are sent. */
const FILES_MAX_BYTES = 150_000;
const FOLDER = new URL('../../../dist/dashboard', import.meta.url).pathname;

test('all files of the dashboard together are at most 150 kB, as they are sent', () => {
  expect(existsSync(FOLDER)).toBe(true);
  const names = readdirSync(FOLDER);
  expect(names.filter((name) => !name.endsWith('.gz'))).toEqual([]);
  const bytes = names.reduce((sum, name) => sum + statSync(join(FOLDER, name)).size, 0);
  expect(bytes).toBeGreaterThan(10_000);
  expect(bytes).toBeLessThanOrEqual(FILES_MAX_BYTES);
});
