/**
 * Where the members of a JSON text are, and names that an object has twice, of which `JSON.parse`
 * takes the last without a word.
 */

import { type Place, placeAt, walk } from '../json-text.ts';

/** A name that stands in its object a second time. */
export interface RepeatedName extends Place {
  name: string;
  /** The names and indices that lead to the object; of a deep one the first few. */
  path: string[];
}

export interface JsonMembers {
  repeated: RepeatedName[];
  /** Where a member or an item begins, or else the nearest one around it that is known. */
  placeOf(path: readonly string[]): Place;
}

/** Paths of members are remembered to this depth: that of `windows[0].duration` of a policy. */
const PATH_MAX = 5;

/** @param text that is JSON */
export function jsonMembers(text: string): JsonMembers {
  const offsets = new Map<string, number>();
  const repeated: RepeatedName[] = [];
  /** For each value that is open: its names, and the one, or the index, that is being read. */
  const open: { names: Set<string>; step: string; items: number }[] = [];
  const path = (depth: number) => open.slice(0, depth).map(({ step }) => step);
  const remember = (offset: number) => {
    if (open.length <= PATH_MAX) offsets.set(JSON.stringify(path(open.length)), offset);
  };
  walk(text, {
    open: () => open.push({ names: new Set(), step: '', items: 0 }),
    close: () => open.pop(),
    name: (name, offset) => {
      const within = open[open.length - 1];
      if (within.names.has(name)) {
        const around = path(Math.min(open.length - 1, PATH_MAX));
        repeated.push({ ...placeAt(text, offset), name, path: around });
      }
      within.names.add(name);
      within.step = name;
      remember(offset);
    },
    item: (offset) => {
      const within = open[open.length - 1];
      within.step = String(within.items++);
      remember(offset);
    },
  });
  const placeOf = (path: readonly string[]): Place => {
    const offset = offsets.get(JSON.stringify(path));
    if (offset !== undefined || path.length === 0) return placeAt(text, offset ?? 0);
    return placeOf(path.slice(0, -1));
  };
  return { repeated, placeOf };
}
