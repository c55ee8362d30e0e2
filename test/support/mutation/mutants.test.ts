/** Candidates, samples and instrumented texts of small sources. */

import { describe, expect, test } from 'vitest';
import { findMutations } from './candidates.ts';
import { instrument, locateMutant, sampleMutants } from './mutants.ts';

const found = (text: string) => {
  return findMutations(text).map(({ original, replacement }) => `${original} => ${replacement}`);
};

describe('candidates', () => {
  test.each([
    ['x = a < b;', ['a < b => a <= b']],
    ['x = a === b;', ['a === b => a !== b']],
    ['if (a === b) f;', ['a === b => a !== b']],
    ['if (a) f;', ['a => !(a)']],
    ['x = a ?? b;', ['a ?? b => a']],
    ['x = !a;', ['!a => a']],
    ['x = [-a, true];', ['-a => a', 'true => false']],
    ['x = Math.min(a, b);', ['Math.min => Math.max']],
    ['x = { 1: 7 };', ['7 => 8']],
    ['x += a;', ['x += a => x -= a']],
    ['f(a);', ['f(a); => void 0;']],
    ['/* é — 😀 */ await f(a);', ['await f(a); => void 0;']],
  ])('%s', (text, expected) => {
    expect(found(text)).toEqual(expected);
  });

  test.each([
    "x = 'a' + b;",
    "x = b + 'a' + c;",
    'x = `a` + b;',
    'type A = 1 | true; let x: A[0];',
    'interface A { a: 1; 2: true }',
    'throw new Error(a + 1);',
    'assertValid(a);',
    'this.log.info(a);',
    'class A extends B { constructor() { super(a); } }',
  ])('none in %s', (text) => {
    expect(found(text)).toEqual([]);
  });
});

const SOURCES = ['engine', 'auth'].map((folder, i) => ({
  path: `src/${folder}/a.ts`,
  text: Array.from({ length: 10 + 90 * i }, (_, n) => `x = a${n} < (b + ${n});\n`).join(''),
}));

describe('a sample', () => {
  test('is the same for a seed, and gives each folder its minimum', () => {
    const sample = sampleMutants(SOURCES, 12, 1);
    expect(sample).toEqual(sampleMutants(SOURCES, 12, 1));
    expect(sample).not.toEqual(sampleMutants(SOURCES, 12, 2));
    expect(sample.map(({ path }) => path)).toHaveLength(12);
    expect(sample.filter(({ path }) => path.startsWith('src/engine'))).toHaveLength(6);
  });

  test('is located at its offset, and where its lines are after an insertion', () => {
    const [{ text }] = SOURCES;
    const [mutant] = sampleMutants(SOURCES, 12, 1);
    const old = { path: mutant.path, text: `// head\n${text}` };
    const [moved] = sampleMutants([old], 1, 1);
    expect(locateMutant(old.text, moved)).toEqual(moved);
    const changed = old.text.replace('\n', '\n// more\n');
    const { start, line } = locateMutant(changed, moved)!;
    expect([start, line]).toEqual([moved.start + '// more\n'.length, moved.line + 1]);
    expect(locateMutant(changed.replace(moved.context, ''), moved)).toBeUndefined();
    expect(locateMutant(`${changed}${moved.context}\n`, moved)).toBeUndefined();
  });
});

test('an instrumented text runs each side of each mutant, and removes calls', () => {
  const text = 'if (a < 2) f(1);\nelse g(1);\nx = a;\n';
  const at = (original: string, replacement: string) => {
    return { start: text.indexOf(original), original, replacement };
  };
  const mutants = new Map([
    [3, at('a < 2', 'a <= 2')],
    [4, at('f(1);', 'void 0;')],
  ]);
  const result = instrument(text, mutants, '../switch.ts');
  expect(result.split('\n')).toHaveLength(text.split('\n').length);
  const run = (active: number) => {
    const calls: string[] = [];
    const body = result.slice(result.indexOf(';') + 1);
    const names = ['__mutant', 'f', 'g', 'a', 'x'];
    const log = (name: string) => () => calls.push(name);
    new Function(...names, body)((id: number) => id === active, log('f'), log('g'), 2, 0);
    return calls;
  };
  expect([run(-1), run(3), run(4)]).toEqual([['g'], ['f'], ['g']]);
});
