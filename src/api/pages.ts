/**
 * Lists in pages. Records are listed in the order of their rows, in which they came and which never
 * changes; a cursor is the row of the last one. So a list that changes while it is read shows each
 * record that stays exactly once.
 */

import Type from 'typebox';
import { integer } from './schema.ts';

/** Fields of a query that asks for a page. */
export function pageFields(most: number) {
  return {
    limit: Type.Optional(integer(1, most)),
    cursor: Type.Optional(
      Type.String({ pattern: '^[0-9]{1,15}$', takes: 'the cursor of the page before' }),
    ),
  };
}

interface Asked {
  limit?: number;
  cursor?: string;
}

/** @param most items of a page that does not say how many */
export function pageOf<T extends { row: number }>(all: T[], asked: Asked, most: number) {
  const { limit = most, cursor } = asked;
  const after = cursor === undefined ? Number.NEGATIVE_INFINITY : Number(cursor);
  const left = all.filter(({ row }) => row > after).sort((a, b) => a.row - b.row);
  const items = left.slice(0, limit);
  const next = left.length > limit ? { cursor: String(items[limit - 1].row) } : {};
  return { items, rest: { ...next, total: all.length } };
}
