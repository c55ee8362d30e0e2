/** Recent decisions as a table. */

import { formatDuration, formatWhole } from '../common/format.ts';
import { IdentifierActions } from '../common/identifier-actions.tsx';
import type { Response } from '../common/operations.ts';
import { linkTo } from '../common/router.ts';
import { type Column, SortedTable } from '../common/sorted-table.tsx';
import { State } from '../common/state.tsx';
import { Name, Time } from '../common/text.tsx';

type Decision = Response<'analytics.getDecisions'>['decisions'][number];

interface DecisionTableProps {
  caption: string;
  decisions: readonly Decision[];
  /** Whether all are of one identifier, which the view names. */
  isOfOne?: boolean;
  /** Whether there are more than these. */
  isPartial?: boolean;
}

const SUBJECT: Column<Decision>[] = [
  {
    name: 'Namespace',
    cell: ({ namespace }) => (
      <a href={linkTo('namespaces', namespace.name)}>
        <Name text={namespace.name} />
      </a>
    ),
    value: ({ namespace }) => namespace.name,
  },
  { name: 'Identifier', cell: Subject, value: ({ identifier }) => identifier, isHeader: true },
];

const BEFORE: Column<Decision>[] = [
  { name: 'Time', cell: ({ time }) => <Time ms={time} />, value: ({ time }) => time },
  {
    name: 'Decision',
    cell: ({ decision, shadow }) => (
      <>
        <State meaning={decision}>{decision}</State>
        {shadow && <span class="hint"> (passed: shadow mode)</span>}
      </>
    ),
    value: ({ decision }) => decision,
  },
  { name: 'Count#', cell: ({ count }) => formatWhole(count), value: ({ count }) => count },
];

const AFTER: Column<Decision>[] = [
  { name: 'Limit', cell: limitText, value: ({ limit }) => limit },
  {
    name: 'Left#',
    cell: ({ remaining }) => remaining !== undefined && formatWhole(remaining),
    value: ({ remaining }) => remaining,
  },
  { name: 'Limit set by', cell: ({ source }) => source, value: ({ source }) => source },
];

const LAST: Column<Decision>[] = [
  {
    name: 'Left out#',
    cell: ({ leftOut }) => leftOut > 0 && formatWhole(leftOut),
    value: ({ leftOut }) => leftOut,
  },
  {
    name: 'Actions',
    cell: ({ namespace, identifier }) =>
      identifier !== undefined && (
        <IdentifierActions namespace={namespace.name} identifier={identifier} />
      ),
  },
];

const OF_ONE = [...BEFORE, ...AFTER].map((column, i) => ({ ...column, isHeader: i === 0 }));
const OF_ALL = [...BEFORE, ...SUBJECT, ...AFTER, ...LAST];

export function DecisionTable({
  caption,
  decisions,
  isOfOne = false,
  isPartial = false,
}: DecisionTableProps) {
  return (
    <SortedTable
      caption={caption}
      columns={isOfOne ? OF_ONE : OF_ALL}
      rows={decisions}
      keyOf={({ id, time }) => `${id} ${time}`}
      isPartial={isPartial}
    />
  );
}

function Subject({ namespace, identifier }: Decision) {
  if (identifier === undefined) return <em>no identifier</em>;
  return (
    <a href={linkTo('identifier', '', { namespace: namespace.name, identifier })}>
      <Name text={identifier} />
    </a>
  );
}

function limitText({ limit, duration, algorithm, kind, inUse, cost }: Decision): string {
  if (limit === undefined) return '';
  const costs = cost === 1 ? '' : `, cost ${formatWhole(cost)}`;
  if (kind === 'lease') {
    return `${formatWhole(inUse ?? 0)} of ${formatWhole(limit)} in use by leases${costs}`;
  }
  return `${formatWhole(limit)} per ${formatDuration(duration ?? 0)}, ${algorithm}${costs}`;
}
