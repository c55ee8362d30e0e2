/** API keys: list, create and revoke. The text of a new key is shown once, and not kept. */

import { useState } from 'preact/hooks';
import type { ViewProps } from '../common/context.ts';
import { Confirm, ErrorNote, Note, Table, Unavailable, useLoad } from '../common/controls.tsx';
import { formatWhole } from '../common/format.ts';
import { type Namespace, useNamespaces } from '../common/namespaces.ts';
import { call, callAll, type Response } from '../common/operations.ts';
import { End, Name, Time } from '../common/text.tsx';
import { visibleText } from '../common/visible-text.ts';
import { CreateKey } from './create-key.tsx';

type Key = Response<'keys.list'>['keys'][number];

/** weir stores 1 000 keys at most, and one may be configured. */
const KEYS_MAX = 1_100;
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
        <Table
          caption={`Keys: ${formatWhole(list.data.length)}`}
          columns={['Name', 'Permissions', 'Created', 'Expires', 'Id', 'Actions']}
        >
          {list.data.map((key) => (
            <KeyRow
              key={key.keyId}
              record={key}
              isOwn={key.keyId === ownId}
              namespaces={namespaces.data ?? []}
              onRevoke={grant.has('keys.revoke') ? () => setRevoked(key) : undefined}
            />
          ))}
        </Table>
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
        <Confirm
          title="Revoke the key?"
          action="Revoke"
          run={async () => {
            await call('keys.revoke', { keyId: revoked.keyId });
            setDone(`The key ${visibleText(revoked.name)} was revoked.`);
            list.reload();
          }}
          onClose={() => setRevoked(undefined)}
        >
          <p>
            Requests with <Name text={revoked.name} /> are rejected from now on. This cannot be
            undone.
          </p>
          {revoked.keyId === ownId && (
            <Note kind="warning">You are signed in with this key. You will be signed out.</Note>
          )}
        </Confirm>
      )}
    </>
  );
}

interface RowProps {
  record: Key;
  isOwn: boolean;
  namespaces: readonly Namespace[];
  onRevoke: (() => void) | undefined;
}

function KeyRow({ record, isOwn, namespaces, onRevoke }: RowProps) {
  const { keyId, name, permissions, createdAt, expires } = record;
  return (
    <tr>
      <th scope="row">
        <Name text={name} /> {isOwn && <span class="tag">yours</span>}
      </th>
      <td>
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
      </td>
      <td>
        <Time ms={createdAt} />
      </td>
      <td>
        <End ms={expires} />
      </td>
      <td>
        <code>{keyId}</code>
      </td>
      <td class="actions">
        {onRevoke !== undefined && (
          <button type="button" aria-label={`Revoke ${visibleText(name)}`} onClick={onRevoke}>
            Revoke
          </button>
        )}
      </td>
    </tr>
  );
}

/** A permission with the name of its namespace in place of the id, where that is known. */
function withNamespaceName(permission: string, namespaces: readonly Namespace[]): string {
  const [, id, action] = /^ratelimit\.(rlns_[^.]+)\.(\w+)$/.exec(permission) ?? [];
  const name = namespaces.find((namespace) => namespace.id === id)?.name;
  return name === undefined ? permission : `${visibleText(name)}: ${action}`;
}
