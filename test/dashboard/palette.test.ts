/** The colors of charts, of which axe checks none. */

import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';

const read = (name: string) => readFileSync(`src/dashboard/${name}.css`, 'utf8');
const COLORS = new Map(
  [...(read('style') + read('charts')).matchAll(/--([a-z\d-]+): ([^;]+);/g)].map((match) => {
    return [match[1], match[2]];
  }),
);

/** The light and the dark color of a name. */
function colorsOf(name: string): string[] {
  const value = COLORS.get(name)!;
  const alias = /^var\(--([a-z\d-]+)\)$/.exec(value);
  return alias === null ? value.match(/#[\da-f]+/g)! : colorsOf(alias[1]);
}

/** As WCAG 2 defines it. */
function luminanceOf(color: string): number {
  const digits = color.length === 4 ? color.replace(/[\da-f]/g, '$&$&') : color;
  const [red, green, blue] = [1, 3, 5].map((at) => {
    const share = Number.parseInt(digits.slice(at, at + 2), 16) / 255;
    return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}

const MEANINGS = ['allowed', 'denied', 'warning', 'p50', 'p99', 'p999'];

test.each(MEANINGS)('the color of %s has a contrast of 3:1 at least, light and dark', (name) => {
  const backgrounds = colorsOf('background');
  for (const [i, color] of colorsOf(name).entries()) {
    const [dark, light] = [color, backgrounds[i]].map(luminanceOf).toSorted((a, b) => a - b);
    expect((light + 0.05) / (dark + 0.05)).toBeGreaterThanOrEqual(3);
  }
});

test('no two meanings have the same color', () => {
  for (const mode of [0, 1]) {
    expect(new Set(MEANINGS.map((name) => colorsOf(name)[mode])).size).toBe(MEANINGS.length);
  }
});
