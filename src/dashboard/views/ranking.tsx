/** Identifiers by how often they were denied, or by what they spent. */

import { Table } from '../common/controls.tsx';
import { formatCount } from '../common/format.ts';
import type { RankedIdentifier } from '../common/operations.ts';
import { linkTo } from '../common/router.ts';
import { Name } from '../common/text.tsx';

interface RankingProps {
  caption: string;
  unit: string;
  /** Of all identifiers; undefined where each names its own. */
  namespaceName?: string;
  identifiers: readonly RankedIdentifier[];
}

export function Ranking({ caption, unit, namespaceName, identifiers }: RankingProps) {
  if (identifiers.length === 0) return <p class="empty">{caption}: none in this time.</p>;
  const named = namespaceName === undefined ? ['Namespace'] : [];
  return (
    <Table caption={caption} columns={['Identifier', ...named, unit]}>
      {identifiers.map(({ identifier, namespace, cutOff, count, error }) => (
        <tr key={`${namespace?.id} ${identifier}`}>
          <th scope="row">
            {cutOff ? (
              <>
                <Name text={identifier} />…
              </>
            ) : (
              <a href={addressOf(namespaceName ?? namespace?.name, identifier)}>
                <Name text={identifier} />
              </a>
            )}
          </th>
          {namespaceName === undefined && (
            <td>
              <Name text={namespace?.name ?? ''} />
            </td>
          )}
          <td class="number">{formatCount({ count, error })}</td>
        </tr>
      ))}
    </Table>
  );
}

function addressOf(namespace: string | undefined, identifier: string): string {
  return linkTo('identifier', '', { ...(namespace !== undefined && { namespace }), identifier });
}
