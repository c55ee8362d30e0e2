/** API keys: list, create and revoke. The text of a new key is shown once, and not kept. */

import { useRef, useState } from 'preact/hooks';
import type { ViewProps } from '../common/context.ts';
import {
  Checkbox,
  Confirm,
  Dialog,
  ErrorNote,
  Field,
  Note,
  Select,
  Table,
  TextArea,
  Unavailable,
  useAction,
  useLoad,
} from '../common/controls.tsx';
import { formatWhole } from '../common/format.ts';
import { type Namespace, useNamespaces } from '../common/namespaces.ts';
import { call, callAll, type Response } from '../common/operations.ts';
import { ACTIONS, CREATE_NAMESPACE, GLOBALS, type Grant } from '../common/permissions.ts';
import { Name, Time } from '../common/text.tsx';
import { visibleText } from '../common/visible-text.ts';

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
              isOwn={key.keyId === session.keyId}
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
          {revoked.keyId === session.keyId && (
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
      <td>{expires === undefined ? 'never' : <Time ms={expires} />}</td>
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

const EVERYWHERE = '*';

interface CreateProps {
  grant: Grant;
  namespaces: readonly Namespace[];
  onCreated: () => void;
  onClose: () => void;
}

function CreateKey({ grant, namespaces, onCreated, onClose }: CreateProps) {
  const [name, setName] = useState('');
  const [scope, setScope] = useState(EVERYWHERE);
  const [chosen, setChosen] = useState<readonly string[]>([]);
  const [others, setOthers] = useState('');
  const [expires, setExpires] = useState('');
  const [created, setCreated] = useState<Response<'keys.create'>>();
  const toggle = (permission: string) => (isChecked: boolean) => {
    setChosen(isChecked ? [...chosen, permission] : chosen.filter((one) => one !== permission));
  };
  const creating = useAction(async () => {
    const permissions = [...chosen, ...others.split(/\s+/).filter((line) => line !== '')];
    const until = expires === '' ? {} : { expires: new Date(expires).getTime() };
    setCreated(await call('keys.create', { name, permissions, ...until }));
    onCreated();
  });
  if (created !== undefined) return <CreatedKey created={created} onClose={onClose} />;
  const checkbox = (permission: string, meaning: string) => (
    <Checkbox
      key={permission}
      label={
        <>
          {meaning} <code>{permission}</code>
        </>
      }
      isChecked={chosen.includes(permission)}
      onToggle={toggle(permission)}
    />
  );
  return (
    <Dialog title="Create a key" onClose={onClose}>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          void creating.run();
        }}
      >
        <div class="fields">
          <Field
            label="Name"
            required
            value={name}
            onInput={({ currentTarget }) => setName(currentTarget.value)}
          />
          <Field
            label="Expires"
            type="datetime-local"
            value={expires}
            onInput={({ currentTarget }) => setExpires(currentTarget.value)}
            hint="Empty: never"
          />
        </div>
        <fieldset>
          <legend>Permissions in namespaces</legend>
          <Select
            label="Namespace"
            value={scope}
            onChoose={setScope}
            options={[
              [EVERYWHERE, 'All namespaces'],
              ...namespaces.map(({ id, name }) => [id, visibleText(name)] as const),
            ]}
          />
          <div class="checkboxes">
            {Object.entries(ACTIONS).map(([action, meaning]) =>
              checkbox(`ratelimit.${scope}.${action}`, meaning),
            )}
            {scope === EVERYWHERE && checkbox(CREATE_NAMESPACE, 'create namespaces')}
          </div>
        </fieldset>
        <fieldset>
          <legend>Other permissions</legend>
          <div class="checkboxes">
            {Object.entries(GLOBALS).map(([permission, meaning]) => checkbox(permission, meaning))}
            {grant.has('*') && checkbox('*', 'everything')}
          </div>
          <TextArea
            label="More permissions, one in a line"
            rows={2}
            value={others}
            onInput={({ currentTarget }) => setOthers(currentTarget.value)}
          />
        </fieldset>
        <p class="hint">The new key can have only permissions that your key has.</p>
        <ErrorNote error={creating.error} />
        <div class="buttons">
          <button type="submit" class="primary" disabled={creating.isRunning}>
            Create
          </button>
          <button type="button" onClick={onClose}>
            Cancel
          </button>
        </div>
      </form>
    </Dialog>
  );
}

function CreatedKey({
  created,
  onClose,
}: {
  created: Response<'keys.create'>;
  onClose: () => void;
}) {
  const text = useRef<HTMLInputElement>(null);
  const [isCopied, setCopied] = useState(false);
  const copying = useAction(async () => {
    // The clipboard needs a page from this machine, or TLS. Otherwise the key is copied by hand.
    if (navigator.clipboard === undefined) {
      text.current?.select();
      throw new Error('The browser does not let this page copy. The key is selected: copy it.');
    }
    await navigator.clipboard.writeText(created.key);
    setCopied(true);
  });
  return (
    <Dialog title="The key was created" onClose={onClose}>
      <p>
        This is the only time that the key is shown. Its id is <code>{created.keyId}</code>.
      </p>
      <div class="fields">
        <div class="field wide">
          <label for="new-key">API key</label>
          <input id="new-key" ref={text} class="key" readOnly value={created.key} />
        </div>
      </div>
      {isCopied && <Note kind="success">The key was copied.</Note>}
      <ErrorNote error={copying.error} />
      <div class="buttons">
        <button type="button" class="primary" onClick={() => copying.run()}>
          Copy
        </button>
        <button type="button" onClick={onClose}>
          Close
        </button>
      </div>
    </Dialog>
  );
}
