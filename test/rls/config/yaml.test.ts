/** What is YAML for the rate limit service, and what is not. */

import { describe, expect, test } from 'vitest';
import { RLS_YAML_DEPTH_MAX } from '../../../src/core/constants.ts';
import { StartError } from '../../../src/core/errors.ts';
import { YamlFile } from '../../../src/rls/config/yaml.ts';

function faultOf(text: string): string {
  try {
    new YamlFile('f', text);
  } catch (error) {
    expect(error).toBeInstanceOf(StartError);
    return (error as StartError).message;
  }
  return 'no fault';
}

/** The map in a file as JSON. */
function jsonOf(text: string, maxBytes = 1_000) {
  const file = new YamlFile('f', text);
  return file.json('m', file.root!, maxBytes);
}

describe('a scalar without quotes', () => {
  test('has the type that yaml.v2 gives it', () => {
    const text = [
      '{a: yes, b: on, c: n, d: ~, e: "", f: , 010: x, 1_000: t, g: 1_000, h: 0b11, i: -0, j: +5',
      'k: 5., l: .5, m: 0o17, n: 12:30:45, o: Off, p: t, q: 99999999999999999999, r: 1e2, s: -0x10}',
    ].join(',\n ');
    expect(jsonOf(text)).toEqual({
      a: true,
      b: true,
      c: false,
      d: null,
      e: '',
      f: null,
      '010': 'x',
      '1_000': 't',
      g: 1_000,
      h: 3,
      i: 0,
      j: 5,
      k: 5,
      l: 0.5,
      m: 15,
      n: '12:30:45',
      o: false,
      p: 't',
      q: 1e20,
      r: 100,
      s: -16,
    });
  });

  test('is a text with quotes or with !!str', () => {
    expect(jsonOf('{a: "1", b: \'true\', c: !!str 1, d: ! 1}')).toEqual({
      a: '1',
      b: 'true',
      c: '1',
      d: '1',
    });
  });
});

describe('an alias', () => {
  test('has the value of the last anchor before it', () => {
    expect(jsonOf('{a: &x 1, b: *x, c: &x {d: 2}, e: *x}')).toEqual({
      a: 1,
      b: 1,
      c: { d: 2 },
      e: { d: 2 },
    });
  });

  test('counts each time for the bytes of a map, and a map in itself ends', () => {
    const levels = Array.from({ length: 20 }, (_, level) => {
      const items =
        level === 0
          ? 'x'
          : Array(10)
              .fill(`*l${level - 1}`)
              .join(', ');
      return `l${level}: &l${level} [${items}]`;
    });
    expect(() => jsonOf(levels.join('\n'))).toThrow('"m" must be at most 1000 bytes of JSON');
    expect(() => jsonOf('&a {a: *a}')).toThrow(/nested at most|at most 1000 bytes/);
  });

  test('of one map twice is one object, which many rules can share', () => {
    const file = new YamlFile('f', '{a: &x {b: 1}, c: *x}');
    const [a, c] = file.fields(file.root!, 'a file');
    const value = file.json('a', a.value, 100);
    expect(value).toEqual({ b: 1 });
    expect(file.json('c', c.value, 100)).toBe(value);
  });
});

test('a key may be __proto__, and it is a key like any other', () => {
  const json = jsonOf('{__proto__: {a: 1}}')!;
  expect(JSON.stringify(json)).toBe('{"__proto__":{"a":1}}');
  expect(Object.getPrototypeOf(json)).toBe(Object.prototype);
});

describe('a file', () => {
  test('has a root, unless it is empty', () => {
    for (const text of ['', '# comment', '---\n', 'null', '--- \n---\n']) {
      expect([text, new YamlFile('f', text).root]).toEqual([text, undefined]);
    }
    for (const text of ['a: b', '\ufeffa: b', '---\na: b\n---\n', '%YAML 1.2\n---\na: b']) {
      expect([text, jsonOf(text)]).toEqual([text, { a: 'b' }]);
    }
  });

  test.each([
    ['a: [', 'f:1: this is not YAML: '],
    ['a: b\n\tc: d', 'f:2: this is not YAML: '],
    ['a: b\nc: @d', 'f:2: this is not YAML: '],
    ['a: 1\nb: 2\na: 3', 'f:3: the key "a" is repeated; it is also at f:1'],
    ['a: {b: 1, b: 2}', 'f:1: the key "b" is repeated; it is also at f:1'],
    ['a: 1\n---\nb: 2', 'f:3: a file must have one YAML document; got a second one'],
    ['a: b\n...\nc', 'f:3: a file must have one YAML document; got a second one'],
    ['a: *b', 'f:1: *b is no anchor; a text with a * must be in quotes'],
    ['a: *b\nc: &b 1', 'f:1: *b is no anchor; a text with a * must be in quotes'],
    ['a: !!binary aGk=', 'f:1: a tag must be !!str or left out; got "tag:yaml.org,2002:binary"'],
    ['a: !own x', 'f:1: a tag must be !!str or left out; got "!own"'],
    ['a: &x {b: c}\nd: {<<: *x}', 'f:2: the merge key << is not supported: repeat the fields that'],
    ['? [a]\n: b', 'f:1: a key must be a text; got a list of 1'],
    ['"\\ud800": a', 'f:1: a key must be Unicode; got a lone surrogate'],
  ])('%j has an error with its line', (text, message) => {
    expect(faultOf(text).slice(0, message.length)).toBe(message);
  });

  test('that is nested very deeply is an error, and does not end the process', () => {
    const message = `f:1: YAML must be nested at most ${RLS_YAML_DEPTH_MAX} deep; got more`;
    for (const opening of ['[', '{a: ', '- ', '? ']) {
      expect(faultOf(opening.repeat(200_000))).toBe(message);
    }
    const deepest = RLS_YAML_DEPTH_MAX / 2;
    expect(faultOf(`${'['.repeat(deepest)}${']'.repeat(deepest)}`)).toBe('no fault');
  });
});
