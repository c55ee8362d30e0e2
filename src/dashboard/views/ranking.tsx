/** Identifiers by how often they were denied, or by what they spent. */

import { formatCount } from '../common/format.ts';
import { IdentifierActions } from '../common/identifier-actions.tsx';
import type { RankedIdentifier } from '../common/operations.ts';
import { linkTo } from '../common/router.ts';
import { type Column, SortedTable } from '../common/sorted-table.tsx';
import { Name } from '../common/text.tsx';

interface RankingProps {
  caption: string;
  unit: 'Denied#' | 'Tokens#';
  /** Of all identifiers; undefined where each names its own. */
  namespaceName?: string;
  identifiers: readonly RankedIdentifier[];
}

export function Ranking({ caption, unit, namespaceName, identifiers }: RankingProps) {
  if (identifiers.length === 0) return <p class="empty">{caption}: none in this time.</p>;
  const namespaceOf = ({ namespace }: RankedIdentifier) => namespaceName ?? namespace?.name;
  const named: Column<RankedIdentifier> = {
    name: 'Namespace',
    cell: (ranked) => <Name text={namespaceOf(ranked) ?? ''} />,
    value: namespaceOf,
  };
  const columns: Column<RankedIdentifier>[] = [
    {
      name: 'Identifier',
      cell: (ranked) => <RankedName ranked={ranked} namespace={namespaceOf(ranked)} />,
      value: ({ identifier }) => identifier,
    },
    ...(namespaceName === undefined ? [named] : []),
    {
      name: unit,
      cell: formatCount,
      value: ({ count }) => count,
      bar: unit === 'Denied#' ? 'denied' : 'neutral',
    },
    {
      name: 'Actions',
      cell: (ranked) => {
        const namespace = namespaceOf(ranked);
        if (ranked.cutOff || namespace === undefined) return null;
        return <IdentifierActions namespace={namespace} identifier={ranked.identifier} />;
      },
    },
  ];
  return (
    <SortedTable
      caption={caption}
      columns={columns}
      rows={identifiers}
      keyOf={({ namespace, identifier }) => `${namespace?.id} ${identifier}`}
    />
  );
}

interface NameProps {
  ranked: RankedIdentifier;
  namespace: string | undefined;
}

function RankedName({ ranked: { identifier, cutOff }, namespace }: NameProps) {
  const name = <Name text={identifier} />;
  if (cutOff) return <>{name}…</>;
  const place = namespace === undefined ? {} : { namespace };
  return <a href={linkTo('identifier', '', { ...place, identifier })}>{name}</a>;
}
