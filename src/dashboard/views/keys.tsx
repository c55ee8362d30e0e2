/** API keys: list, create and revoke. The text of a new key is shown once, and not kept. */

import { useState } from 'preact/hooks';
import type { ViewProps } from '../common/context.ts';
import { Confirm, ErrorNote, Note, Unavailable, useLoad } from '../common/controls.tsx';
import { Copy } from '../common/copy.tsx';
import { formatWhole } from '../common/format.ts';
import { KEYS_MAX } from '../common/key-names.ts';
import { type Namespace, useNamespaces } from '../common/namespaces.ts';
import { call, callAll, type Response } from '../common/operations.ts';
import type { Grant } from '../common/permissions.ts';
import { type Column, SortedTable } from '../common/sorted-table.tsx';
import { End, Name, Time } from '../common/text.tsx';
import { visibleText } from '../common/visible-text.ts';
import { CreateKey } from './create-key.tsx';

type Key = Response<'keys.list'>['keys'][number];

/** Permissions of a key in the table. */
const PERMISSIONS_SHOWN = 8;

export function KeysView({ session, grant }: ViewProps) {
  const [isCreating, setCreating] = useState(false);
  const [revoked, setRevoked] = useState<Key>();
  const [done, setDone] = useState('');
  const namespaces = useNamespaces(grant);
  const { holder } = session;
  const ownId = 'keyId' in holder ? holder.keyId : undefined;
  const mayList = grant.has('keys.read');
  const list = useLoad(async () => {
    if (!mayList) return [];
    return (await callAll('keys.list', {}, ({ keys }) => keys, KEYS_MAX)).items;
  }, []);
  return (
    <>
      <h1 tabIndex={-1}>Keys</h1>
      <div class="toolbar">
        <div class="buttons">
          {grant.has('keys.create') && (
            <button type="button" class="primary" onClick={() => setCreating(true)}>
              Create key
            </button>
          )}
        </div>
      </div>
      {done !== '' && <Note kind="success">{done}</Note>}
      <ErrorNote error={list.error} />
      {!mayList && <Unavailable permission="keys.read" what="list keys" />}
      {list.data !== undefined && list.data.length > 0 && (
        <SortedTable
          caption={`Keys: ${formatWhole(list.data.length)}`}
          columns={columnsOf(namespaces.data ?? [], {
            ownId,
            onRevoke: grant.has('keys.revoke') ? setRevoked : undefined,
          })}
          rows={list.data}
          keyOf={({ keyId }) => keyId}
        />
      )}
      {isCreating && (
        <CreateKey
          grant={grant}
          namespaces={namespaces.data ?? []}
          onCreated={list.reload}
          onClose={() => setCreating(false)}
        />
      )}
      {revoked !== undefined && (
        <RevokeKey
          record={revoked}
          keys={list.data ?? []}
          isOwn={revoked.keyId === ownId}
          grant={grant}
          onDone={(what) => {
            setDone(what);
            list.reload();
          }}
          onClose={() => setRevoked(undefined)}
        />
      )}
    </>
  );
}

interface RevokeProps {
  record: Key;
  /** All that may be listed. */
  keys: readonly Key[];
  isOwn: boolean;
  grant: Grant;
  onDone: (what: string) => void;
  onClose: () => void;
}

function RevokeKey({ record, keys, isOwn, grant, onDone, onClose }: RevokeProps) {
  const { keyId, name, createdAt } = record;
  const creation = useLoad(async () => {
    if (!grant.has('read_audit')) return undefined;
    const about = { action: 'key.create', target: keyId };
    const { items } = await callAll('audit.list', about, ({ entries }) => entries, 1);
    return items.at(0);
  }, [keyId]);
  const { user, keyId: byId, keyName, by } = creation.data ?? {};
  // The log may have lost the entry. Older entries have no name.
  const author = user ?? keyName ?? keys.find((key) => key.keyId === byId)?.name ?? byId ?? by;
  return (
    <Confirm
      title="Revoke the key?"
      action="Revoke key"
      run={async () => {
        await call('keys.revoke', { keyId });
        onDone(`The key ${visibleText(name)} was revoked.`);
      }}
      onClose={onClose}
    >
      <p>
        Requests with <Name text={name} /> are rejected from now on. This cannot be undone.
      </p>
      <dl class="properties">
        <div>
          <dt>Id</dt>
          <dd>
            <code>{keyId}</code>
          </dd>
        </div>
        <div>
          <dt>Created</dt>
          <dd>
            <Time ms={createdAt} />
          </dd>
        </div>
        <div>
          <dt>Created by</dt>
          <dd>{author === undefined ? 'not known' : <Name text={author} />}</dd>
        </div>
        <div>
          <dt>Last used</dt>
          <dd>weir does not record this</dd>
        </div>
      </dl>
      {isOwn && (
        <Note kind="warning">You are signed in with this key. You will be signed out.</Note>
      )}
    </Confirm>
  );
}

interface ColumnOptions {
  ownId: string | undefined;
  /** Undefined without the permission for it. */
  onRevoke: ((key: Key) => void) | undefined;
}

function columnsOf(
  namespaces: readonly Namespace[],
  { ownId, onRevoke }: ColumnOptions,
): Column<Key>[] {
  return [
    {
      name: 'Name',
      cell: ({ keyId, name }) => (
        <>
          <Name text={name} /> {keyId === ownId && <span class="tag">yours</span>}
        </>
      ),
      value: ({ name }) => name,
    },
    {
      name: 'Permissions',
      cell: ({ permissions }) => <Permissions permissions={permissions} namespaces={namespaces} />,
      value: ({ permissions }) => permissions.join(' '),
    },
    {
      name: 'Created',
      cell: ({ createdAt }) => <Time ms={createdAt} />,
      value: ({ createdAt }) => createdAt,
    },
    {
      name: 'Expires',
      cell: ({ expires }) => <End ms={expires} />,
      value: ({ expires }) => expires,
    },
    {
      name: 'Id',
      cell: ({ keyId }) => (
        <span class="with-copy">
          <code>{keyId}</code>
          <Copy text={keyId} />
        </span>
      ),
    },
    {
      name: 'Actions',
      cell: (key) =>
        onRevoke && (
          <button
            type="button"
            class="danger"
            aria-label={`Revoke ${visibleText(key.name)}`}
            onClick={() => onRevoke(key)}
          >
            Revoke
          </button>
        ),
    },
  ];
}

interface PermissionsProps {
  permissions: readonly string[];
  namespaces: readonly Namespace[];
}

function Permissions({ permissions, namespaces }: PermissionsProps) {
  return (
    <ul class="permissions">
      {permissions.slice(0, PERMISSIONS_SHOWN).map((permission) => (
        <li key={permission}>
          <code>{withNamespaceName(permission, namespaces)}</code>
        </li>
      ))}
      {permissions.length > PERMISSIONS_SHOWN && (
        <li>and {formatWhole(permissions.length - PERMISSIONS_SHOWN)} more</li>
      )}
    </ul>
  );
}

/** A permission with the name of its namespace in place of the id, where that is known. */
function withNamespaceName(permission: string, namespaces: readonly Namespace[]): string {
  const [, id, action] = /^ratelimit\.(rlns_[^.]+)\.(\w+)$/.exec(permission) ?? [];
  const name = namespaces.find((namespace) => namespace.id === id)?.name;
  return name === undefined ? permission : `${visibleText(name)}: ${action}`;
}
