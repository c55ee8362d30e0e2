/**
 * The lists of a namespace and an hour as the database stores them: JSON, short as it is read
 * often.
 */

import type { IdentifierList, ListedIdentifier } from './identifier-list.ts';
import type { SketchName } from './recorder.ts';

/** The identifiers denied most often, and those that spent most tokens. */
export type IdentifierLists = Record<SketchName, IdentifierList> & {
  /** Whether all checks were counted by identifier: false where memory was used up. */
  isComplete: boolean;
};

type StoredItem = [key: string, text: string, isCutOff: 0 | 1, count: number, error: number];

interface StoredList {
  floor: number;
  items: StoredItem[];
}

interface StoredLists {
  denied: StoredList;
  spent: StoredList;
  isComplete: boolean;
}

export function encodeLists({ denied, spent, isComplete }: IdentifierLists): string {
  const stored: StoredLists = { denied: store(denied), spent: store(spent), isComplete };
  return JSON.stringify(stored);
}

/** @param record of `encodeLists` */
export function decodeLists(record: string): IdentifierLists {
  const { denied, spent, isComplete } = JSON.parse(record) as StoredLists;
  return { denied: load(denied), spent: load(spent), isComplete };
}

function store({ floor, items }: IdentifierList): StoredList {
  return {
    floor,
    items: items.map(({ key, text, isCutOff, count, error }): StoredItem => {
      return [key, text, isCutOff ? 1 : 0, count, error];
    }),
  };
}

function load({ floor, items }: StoredList): IdentifierList {
  return {
    floor,
    items: items.map(([key, text, isCutOff, count, error]): ListedIdentifier => {
      return { key, text, isCutOff: isCutOff === 1, count, error };
    }),
  };
}
