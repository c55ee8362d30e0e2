import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { jsonMembers } from '../../src/config/members.ts';
import { scaled } from '../support/scale.ts';

const RUNS = { numRuns: scaled(5_000) };

/** What a text is made of: scalars, lists, and lists of members whose names may be repeated. */
type Tree = number | Tree[] | { members: [string, Tree][] };
const { tree } = fc.letrec<{ tree: Tree }>((tie) => ({
  tree: fc.oneof(
    { maxDepth: 4 },
    fc.nat({ max: 9 }),
    fc.array(tie('tree'), { maxLength: 3 }),
    fc
      .array(fc.tuple(fc.constantFrom('a', 'b', '', 'é"\n', '__proto__'), tie('tree')), {
        maxLength: 4,
      })
      .map((members) => ({ members })),
  ),
}));

interface Written {
  text: string;
  repeated: object[];
  /** Where each member and item begins; of a repeated name the last. */
  places: Map<string, object>;
}

/** Each member and item in a line of its own, indented by its depth. */
function write(tree: Tree): Written {
  const written: Written = { text: '', repeated: [], places: new Map() };
  const place = () => {
    const lines = written.text.split('\n');
    return { line: lines.length, column: lines[lines.length - 1].length + 1 };
  };
  const add = (tree: Tree, path: string[]) => {
    if (typeof tree === 'number') {
      written.text += tree;
      return;
    }
    const isList = Array.isArray(tree);
    const members = isList ? tree.map((item, i) => [String(i), item] as const) : tree.members;
    const names = new Set<string>();
    written.text += isList ? '[' : '{';
    for (const [i, [name, value]] of members.entries()) {
      written.text += `${i > 0 ? ',' : ''}\n${' '.repeat(path.length + 1)}`;
      if (names.has(name)) written.repeated.push({ name, path, ...place() });
      names.add(name);
      written.places.set(JSON.stringify([...path, name]), place());
      if (!isList) written.text += `${JSON.stringify(name)}: `;
      add(value, [...path, name]);
    }
    written.text += isList ? ']' : '}';
  };
  add(tree, []);
  return written;
}

describe('of a JSON text', () => {
  test('every repeated name is found, where it stands the second time and in which object', () => {
    fc.assert(
      fc.property(tree, (tree) => {
        const { text, repeated } = write(tree);
        expect(jsonMembers(text).repeated).toEqual(repeated);
      }),
      RUNS,
    );
  });

  test('the place of each member and item is known', () => {
    fc.assert(
      fc.property(tree, (tree) => {
        const { text, places } = write(tree);
        const members = jsonMembers(text);
        for (const [path, place] of places)
          expect(members.placeOf(JSON.parse(path))).toEqual(place);
      }),
      RUNS,
    );
  });

  test('a member that is not there has the place of the one around it', () => {
    const members = jsonMembers('\n{"a": [\n  {"b": 1}]}');
    expect(members.placeOf(['a', '0', 'c', 'd'])).toEqual({ line: 3, column: 3 });
    expect(members.placeOf(['x'])).toEqual({ line: 1, column: 1 });
  });

  test('names are compared as they are read, whatever is escaped in them', () => {
    const { repeated } = jsonMembers('{"a":1,"\\u0061":2}');
    expect(repeated).toEqual([{ name: 'a', path: [], line: 1, column: 8 }]);
  });

  test('the depth does not matter', () => {
    const deep = '{"a":'.repeat(100_000);
    const text = `${deep}{"b":1,"b":2}${'}'.repeat(100_000)}`;
    const { repeated } = jsonMembers(text);
    expect(repeated).toMatchObject([{ name: 'b', path: Array(5).fill('a'), line: 1 }]);
  });
});
