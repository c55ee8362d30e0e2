/** Recent decisions as a table. */

import { Table } from '../common/controls.tsx';
import { formatDuration, formatWhole } from '../common/format.ts';
import type { Response } from '../common/operations.ts';
import { linkTo } from '../common/router.ts';
import { Name, Time } from '../common/text.tsx';

type Decision = Response<'analytics.getDecisions'>['decisions'][number];

const SOURCES = { override: 'override', policy: 'policy', request: 'request' } as const;

interface DecisionTableProps {
  caption: string;
  decisions: readonly Decision[];
  /** Whether all are of one identifier, which the view names. */
  isOfOne?: boolean;
}

export function DecisionTable({ caption, decisions, isOfOne = false }: DecisionTableProps) {
  const subject = isOfOne ? [] : ['Namespace', 'Identifier'];
  const columns = ['Time', 'Decision', 'Count#', ...subject, 'Limit', 'Left#', 'Limit set by'];
  return (
    <Table caption={caption} columns={isOfOne ? columns : [...columns, 'Left out#']}>
      {decisions.map((decision) => (
        <tr key={`${decision.id} ${decision.time}`}>
          <td>
            <Time ms={decision.time} />
          </td>
          <td class={decision.decision}>
            {decision.decision}
            {decision.shadow && <span class="hint"> (passed: shadow mode)</span>}
          </td>
          <td class="number">{formatWhole(decision.count)}</td>
          {!isOfOne && <SubjectCells decision={decision} />}
          <td>{limitText(decision)}</td>
          <td class="number">
            {decision.remaining !== undefined && formatWhole(decision.remaining)}
          </td>
          <td>{SOURCES[decision.source]}</td>
          {!isOfOne && (
            <td class="number">{decision.leftOut > 0 && formatWhole(decision.leftOut)}</td>
          )}
        </tr>
      ))}
    </Table>
  );
}

function SubjectCells({ decision: { namespace, identifier } }: { decision: Decision }) {
  return (
    <>
      <td>
        <a href={linkTo('namespaces', namespace.name)}>
          <Name text={namespace.name} />
        </a>
      </td>
      <th scope="row">
        {identifier === undefined ? (
          <em>no identifier</em>
        ) : (
          <a href={linkTo('identifier', '', { namespace: namespace.name, identifier })}>
            <Name text={identifier} />
          </a>
        )}
      </th>
    </>
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
