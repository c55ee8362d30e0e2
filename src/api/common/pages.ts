/**
 * Pages of lists. Records are listed by row, in the order of their creation; a cursor is the row of
 * the last record of a page. So a client that lists while records are added or removed gets every
 * record that stays exactly once. The cursor of a ranking is a position: an item that changes its
 * place meanwhile may be missing, or be on two pages.
 */

import Type from 'typebox';
import { field, integer } from '../../core/schema.ts';

/** The fields of a request for a page. @param defaultLimit items of a page without `limit` */
export function pageFields(itemsMax: number, defaultLimit = itemsMax) {
  const limit = field(integer(1, itemsMax), 'Maximum number of items in a page.', defaultLimit);
  const cursor = Type.String({
    pattern: '^[0-9]{1,15}$',
    accepts: 'the cursor of the previous page',
  });
  return {
    limit: Type.Optional(limit),
    cursor: Type.Optional(
      field(cursor, 'The `cursor` of the previous page. Without it, the first page is returned.'),
    ),
  };
}

interface PageRequest {
  limit?: number;
  cursor?: string;
}

/** @param defaultLimit items of a page without `limit` */
export function pageOf<T extends { row: number }>(
  records: Iterable<T>,
  request: PageRequest,
  defaultLimit: number,
) {
  const { limit = defaultLimit, cursor } = request;
  const after = cursor === undefined ? Number.NEGATIVE_INFINITY : Number(cursor);
  // The page and one more item, sorted by insertion: nearly all records come in order.
  const items: T[] = [];
  let total = 0;
  for (const item of records) {
    total++;
    if (item.row <= after) continue;
    if (items.length > limit) {
      if (item.row > items[limit].row) continue;
      items.pop();
    }
    let index = items.length;
    while (index > 0 && items[index - 1].row > item.row) index--;
    items.splice(index, 0, item);
  }
  if (items.length <= limit) return { items, rest: { total } };
  items.pop();
  return { items, rest: { cursor: String(items[limit - 1].row), total } };
}

/**
 * A page of a ranking that is in memory.
 * @param defaultLimit items of a page without `limit`
 * @returns `cursor` is a field of the response, empty on the last page
 */
export function pageOfRanking<T>(
  ranking: readonly T[],
  { limit, cursor }: PageRequest,
  defaultLimit: number,
): { items: T[]; cursor: { cursor?: string } } {
  const from = Number(cursor ?? 0);
  const to = from + (limit ?? defaultLimit);
  const next = to < ranking.length ? { cursor: String(to) } : {};
  return { items: ranking.slice(from, to), cursor: next };
}
