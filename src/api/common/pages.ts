/**
 * Lists in pages. Records are listed in the order of their rows, in which they came and which never
 * changes; a cursor is the row of the last one. So a list that changes while it is read shows each
 * record that stays exactly once.
 */

import Type from 'typebox';
import { integer } from '../../core/schema.ts';

/** Fields of a query that asks for a page. */
export function pageFields(itemsMax: number) {
  return {
    limit: Type.Optional(integer(1, itemsMax)),
    cursor: Type.Optional(
      Type.String({ pattern: '^[0-9]{1,15}$', takes: 'the cursor of the page before' }),
    ),
  };
}

interface PageRequest {
  limit?: number;
  cursor?: string;
}

/** @param defaultLimit items of a page that does not say how many */
export function pageOf<T extends { row: number }>(
  records: Iterable<T>,
  request: PageRequest,
  defaultLimit: number,
) {
  const { limit = defaultLimit, cursor } = request;
  const after = cursor === undefined ? Number.NEGATIVE_INFINITY : Number(cursor);
  // The page and one more, kept sorted: nearly all come in order, and behind it.
  const items: T[] = [];
  let total = 0;
  for (const item of records) {
    total++;
    if (item.row <= after) continue;
    if (items.length > limit) {
      if (item.row > items[limit].row) continue;
      items.pop();
    }
    let place = items.length;
    while (place > 0 && items[place - 1].row > item.row) place--;
    items.splice(place, 0, item);
  }
  if (items.length <= limit) return { items, rest: { total } };
  items.pop();
  return { items, rest: { cursor: String(items[limit - 1].row), total } };
}
