/** Overrides: search, add, change, delete, import and export. */

import { useState } from 'preact/hooks';
import type { ViewProps } from '../common/context.ts';
import { ErrorNote, Field, Note, Unavailable, useAction, useLoad } from '../common/controls.tsx';
import { Copy } from '../common/copy.tsx';
import { formatDuration, formatWhole } from '../common/format.ts';
import { useNamespaces } from '../common/namespaces.ts';
import { callAll, RequestError } from '../common/operations.ts';
import { linkTo, navigate, useStateAt } from '../common/router.ts';
import { type Column, SortedTable } from '../common/sorted-table.tsx';
import { End, Name, Time } from '../common/text.tsx';
import { visibleText } from '../common/visible-text.ts';
import {
  DeleteOverride,
  EditOverride,
  exportOverrides,
  ImportOverrides,
  kindOf,
  namespaceOf,
  type Override,
} from './override-dialogs.tsx';

/** Overrides that are loaded at once. The export has all of them. */
const LOADED_MAX = 10_000;
const USAGE = { usage: true };
type Open =
  | { kind: 'edit'; override: Override | undefined }
  | { kind: 'delete'; override: Override }
  | { kind: 'import' };

async function loadOverrides(
  namespace: string,
): Promise<{ items: Override[]; isComplete: boolean }> {
  if (namespace === '') {
    return callAll('ratelimits.exportOverrides', USAGE, ({ overrides }) => overrides, LOADED_MAX);
  }
  const namespaceName = namespace;
  try {
    return await callAll(
      'ratelimits.listOverrides',
      { namespaceName, ...USAGE },
      ({ overrides }) => overrides.map((one): Override => ({ ...one, namespaceName })),
      LOADED_MAX,
    );
  } catch (error) {
    // A pattern of namespaces without overrides is not known.
    if (error instanceof RequestError && error.status === 404) {
      return { items: [], isComplete: true };
    }
    throw error;
  }
}

export function OverridesView({ grant, route }: ViewProps) {
  const namespace = route.query.get('namespace') ?? '';
  const [name, setName] = useStateAt(namespace, namespace);
  const [filter, setFilter] = useState('');
  const [open, setOpen] = useState<Open>();
  const [done, setDone] = useState('');
  const namespaces = useNamespaces(grant);
  const mayList =
    grant.mayInSome('read_override') && (namespace !== '' || grant.may('read_override'));
  const list = useLoad(async () => {
    if (!mayList) return undefined;
    return loadOverrides(namespace);
  }, [namespace]);
  const text = filter.toLowerCase();
  const found = (list.data?.items ?? []).filter(({ identifier, namespaceName = '' }) => {
    return `${identifier}\n${namespaceName}`.toLowerCase().includes(text);
  });
  const exporting = useAction(exportOverrides);
  const finish = (what: string) => {
    setOpen(undefined);
    setDone(what);
    list.reload();
  };
  const actions: Column<Override> = {
    name: 'Actions',
    cell: (override) => (
      <OverrideActions
        override={override}
        mayChange={grant.mayInSome('set_override')}
        mayDelete={grant.mayInSome('delete_override')}
        onOpen={setOpen}
      />
    ),
  };
  return (
    <>
      <h1 tabIndex={-1}>Overrides</h1>
      <p class="hint">
        An override replaces limit and window of the checks of an identifier. Identifiers may
        contain <code>*</code>, or be a CIDR block of addresses.
      </p>
      <datalist id="namespaces">
        {namespaces.data?.map(({ id, name }) => (
          <option key={id} value={name} />
        ))}
      </datalist>
      <div class="toolbar">
        <Field
          label="Namespace"
          list="namespaces"
          placeholder="all"
          value={name}
          onInput={({ currentTarget }) => setName(currentTarget.value)}
          onChange={() => navigate(linkTo('overrides', '', name === '' ? {} : { namespace: name }))}
        />
        <Field
          label="Search"
          type="search"
          value={filter}
          onInput={({ currentTarget }) => setFilter(currentTarget.value)}
        />
        <div class="buttons">
          {grant.mayInSome('set_override') && (
            <>
              <button
                type="button"
                class="primary"
                onClick={() => setOpen({ kind: 'edit', override: undefined })}
              >
                Add override
              </button>
              <button type="button" onClick={() => setOpen({ kind: 'import' })}>
                Import
              </button>
            </>
          )}
          {grant.may('read_override') && (
            <button type="button" disabled={exporting.isRunning} onClick={() => exporting.run()}>
              Export
            </button>
          )}
        </div>
      </div>
      {done !== '' && <Note kind="success">{done}</Note>}
      <ErrorNote error={list.error ?? exporting.error} />
      {!mayList && (
        <Unavailable
          permission="ratelimit.*.read_override"
          what="list the overrides of all namespaces; name one above if it may read it"
        />
      )}
      {list.data !== undefined && (
        <>
          {found.length === 0 ? (
            <p class="empty">There is no such override.</p>
          ) : (
            <SortedTable
              caption={`Overrides: ${formatWhole(found.length)}`}
              columns={[...COLUMNS, actions]}
              rows={found}
              keyOf={keyOf}
              isPartial={!list.data.isComplete}
            />
          )}
          {!list.data.isComplete && (
            <Note kind="info">
              Only the first {formatWhole(LOADED_MAX)} overrides were loaded. Name a namespace to
              search in the others.
            </Note>
          )}
        </>
      )}
      {open?.kind === 'edit' && (
        <EditOverride
          override={open.override}
          namespace={namespace}
          onDone={finish}
          onClose={() => setOpen(undefined)}
        />
      )}
      {open?.kind === 'delete' && (
        <DeleteOverride
          override={open.override}
          grant={grant}
          onDone={finish}
          onClose={() => setOpen(undefined)}
        />
      )}
      {open?.kind === 'import' && (
        <ImportOverrides onDone={finish} onClose={() => setOpen(undefined)} />
      )}
    </>
  );
}

function keyOf({ namespaceId, namespaceName, identifier, cidr = false }: Override): string {
  return [namespaceId ?? namespaceName, cidr, identifier].join('\n');
}

const COLUMNS: Column<Override>[] = [
  {
    name: 'Identifier',
    cell: ({ identifier }) => <Name text={identifier} />,
    value: ({ identifier }) => identifier,
  },
  { name: 'Kind', cell: kindOf, value: kindOf },
  {
    name: 'Namespace',
    cell: (override) => <Name text={namespaceOf(override)} />,
    value: namespaceOf,
  },
  { name: 'Limit', cell: limitText, value: ({ limit }) => limit },
  {
    name: 'Expires',
    cell: ({ expires }) => <End ms={expires} />,
    value: ({ expires }) => expires,
  },
  {
    name: 'Last applied',
    cell: ({ usage }) =>
      usage && (usage.lastAppliedAt ? <Time ms={usage.lastAppliedAt} /> : 'never'),
    value: ({ usage }) => usage?.lastAppliedAt,
  },
  {
    name: 'Applied#',
    cell: ({ usage }) => usage && formatWhole(usage.applied),
    value: ({ usage }) => usage?.applied,
    bar: 'neutral',
  },
];

/** As in "2,000 per 1 min, 8 leases, async". */
function limitText({ limit, duration, concurrency, async }: Override): string {
  const leases = concurrency === undefined ? '' : `, ${formatWhole(concurrency)} leases`;
  return `${formatWhole(limit)} per ${formatDuration(duration)}${leases}${async ? ', async' : ''}`;
}

interface ActionsProps {
  override: Override;
  mayChange: boolean;
  mayDelete: boolean;
  onOpen: (open: Open) => void;
}

function OverrideActions({ override, mayChange, mayDelete, onOpen }: ActionsProps) {
  const name = visibleText(override.identifier);
  return (
    <span class="row-actions">
      <Copy text={override.identifier} />
      {mayChange && (
        <button
          type="button"
          aria-label={`Change ${name}`}
          onClick={() => onOpen({ kind: 'edit', override })}
        >
          Change
        </button>
      )}
      {mayDelete && (
        <button
          type="button"
          class="danger"
          aria-label={`Delete ${name}`}
          onClick={() => onOpen({ kind: 'delete', override })}
        >
          Delete
        </button>
      )}
    </span>
  );
}
