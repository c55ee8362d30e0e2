/** The benchmark `analytics-cost` switches parts of weir on and off at places of its code. */

import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { expect, test } from 'vitest';

interface Hooks {
  INSERTIONS: Record<string, { text: string }>;
}

test('each place of a switch is in the sources once', async () => {
  const url = pathToFileURL('bench/support/switch-hooks.mjs').href;
  const { INSERTIONS } = (await import(url)) as Hooks;
  const sources = readdirSync('src', { recursive: true, encoding: 'utf8' })
    .filter((path) => path.endsWith('.ts'))
    .map((path) => readFileSync(join('src', path), 'utf8'));
  const places = Object.entries(INSERTIONS).map(([name, { text }]) => {
    return [name, sources.reduce((sum, source) => sum + source.split(text).length - 1, 0)];
  });
  expect(places).toEqual(Object.keys(INSERTIONS).map((name) => [name, 1]));
  expect(places.length).toBeGreaterThan(0);
});
