/** The table of the faults that make a server degraded. */

import { FAULT_REASONS, FAULTS } from '../../src/observe/faults.ts';
import { inlineCode, markdownTable } from './markdown.ts';

/** The page of the table, which links to its own sections by the anchor alone. */
const PAGE = 'operations.md';

export function faultsTable(): string {
  const rows = FAULT_REASONS.map((reason) => {
    const { cause, effect, remedy, see } = FAULTS[reason];
    const [, anchor] = see.split('#');
    const target = see.startsWith(`${PAGE}#`) ? `#${anchor}` : see;
    return [inlineCode(reason), cause, effect, `${remedy} [More](${target})`];
  });
  return markdownTable(['`reason`', 'cause', 'effect', 'remedy'], rows);
}
