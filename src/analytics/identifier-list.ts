/**
 * Lists of the identifiers with the largest counts, and their merge: of several acceptors, runs and
 * hours. An identifier that is missing in a list was counted there at most as often as the floor of
 * the list. So the merge keeps the bounds of a sketch: `count - error <= true count <= count` for
 * each identifier, and no identifier that is missing has a true count above the floor.
 */

export interface ListedIdentifier {
  /** The same for the same identifier in every list. */
  key: string;
  /** The identifier; its beginning where it is cut off. */
  text: string;
  isCutOff: boolean;
  count: number;
  error: number;
}

export interface IdentifierList {
  items: readonly ListedIdentifier[];
  floor: number;
}

/** @param max items of the result: those with the largest proven counts, in this order */
export function mergeLists(lists: readonly IdentifierList[], max: number): IdentifierList {
  const floors = lists.reduce((sum, { floor }) => sum + floor, 0);
  const merged = new Map<string, ListedIdentifier>();
  for (const { items, floor } of lists) {
    for (const item of items) {
      // As if it were missing in all lists, corrected by this one.
      const before = merged.get(item.key) ?? { ...item, count: floors, error: floors };
      const count = before.count - floor + item.count;
      const error = before.error - floor + item.error;
      merged.set(item.key, { ...before, count, error });
    }
  }
  const sorted = [...merged.values()].sort(compareIdentifiers);
  const shown = sorted.slice(0, max).filter((item) => provenCount(item) > 0);
  const others = sorted.slice(shown.length);
  const floor = others.reduce((largest, { count }) => Math.max(largest, count), floors);
  return { items: shown, floor };
}

function provenCount({ count, error }: ListedIdentifier): number {
  return count - error;
}

function compareIdentifiers(a: ListedIdentifier, b: ListedIdentifier): number {
  return provenCount(b) - provenCount(a) || b.count - a.count || (a.key < b.key ? -1 : 1);
}
