/** The identifiers that are blocked now: of one namespace, or of all as a view of their own. */

import { useState } from 'preact/hooks';
import type { ViewProps } from '../common/context.ts';
import { ErrorNote, Note, useLoad } from '../common/controls.tsx';
import { Copy } from '../common/copy.tsx';
import { formatWhole } from '../common/format.ts';
import { callAll, type Response } from '../common/operations.ts';
import type { Grant } from '../common/permissions.ts';
import { linkTo } from '../common/router.ts';
import { type Column, SortedTable } from '../common/sorted-table.tsx';
import { Name, Time } from '../common/text.tsx';
import { visibleText } from '../common/visible-text.ts';
import { EndBlock } from './block-dialogs.tsx';

type Block = Response<'ratelimits.listBlocks'>['blocks'][number];

/** Blocks that are loaded at once. */
const LOADED_MAX = 10_000;

export function BlocksView({ grant }: ViewProps) {
  return (
    <>
      <h1 tabIndex={-1}>Blocks</h1>
      <p class="hint">
        A block denies every check of one identifier in a namespace until its end. To block an
        identifier, find it, and choose “Block” beside it.
      </p>
      <Blocks grant={grant} />
    </>
  );
}

/** @param namespace undefined for all */
export function Blocks({ namespace, grant }: { namespace?: string; grant: Grant }) {
  const [ending, setEnding] = useState<Block>();
  const [done, setDone] = useState('');
  const list = useLoad(async () => {
    const of = namespace === undefined ? {} : { namespaceName: namespace };
    return callAll('ratelimits.listBlocks', of, ({ blocks }) => blocks, LOADED_MAX);
  }, [namespace]);
  const actions: Column<Block> = {
    name: 'Actions',
    cell: (block) => (
      <span class="row-actions">
        <Copy text={block.identifier} />
        {grant.mayInSome('delete_override') && (
          <button
            type="button"
            class="danger"
            aria-label={`End the block of ${visibleText(block.identifier)}`}
            onClick={() => setEnding(block)}
          >
            End
          </button>
        )}
      </span>
    ),
  };
  const blocks = list.data?.items ?? [];
  return (
    <section aria-labelledby="blocks">
      <h2 id="blocks">Blocked identifiers</h2>
      {done !== '' && <Note kind="success">{done}</Note>}
      <ErrorNote error={list.error} />
      {list.data !== undefined && blocks.length === 0 && (
        <p class="empty">No identifier is blocked.</p>
      )}
      {blocks.length > 0 && (
        <SortedTable
          caption="Every check of them is denied"
          columns={[...COLUMNS, actions]}
          rows={blocks}
          keyOf={({ id }) => id}
          isPartial={!list.data!.isComplete}
        />
      )}
      {ending !== undefined && (
        <EndBlock
          target={{ namespace: ending.namespaceName, identifier: ending.identifier }}
          grant={grant}
          onDone={(what) => {
            setEnding(undefined);
            setDone(what);
            list.reload();
          }}
          onClose={() => setEnding(undefined)}
        />
      )}
    </section>
  );
}

const COLUMNS: readonly Column<Block>[] = [
  {
    name: 'Identifier',
    cell: ({ namespaceName: namespace, identifier }) => (
      <a href={linkTo('identifier', '', { namespace, identifier })}>
        <Name text={identifier} />
      </a>
    ),
    value: ({ identifier }) => identifier,
  },
  {
    name: 'Namespace',
    cell: ({ namespaceName }) => <Name text={namespaceName} />,
    value: ({ namespaceName }) => namespaceName,
  },
  { name: 'Since', cell: ({ created }) => <Time ms={created} />, value: ({ created }) => created },
  { name: 'Until', cell: ({ expires }) => <Time ms={expires} />, value: ({ expires }) => expires },
  { name: 'Reason', cell: ({ reason }) => reason !== undefined && <Name text={reason} /> },
  {
    name: 'Denied#',
    cell: ({ usage }) => usage && formatWhole(usage.applied),
    value: ({ usage }) => usage?.applied,
    bar: 'denied',
  },
];
