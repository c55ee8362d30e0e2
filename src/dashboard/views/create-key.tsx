/** The dialog that creates a key, and then shows it once. */

import { useRef, useState } from 'preact/hooks';
import { ROLE_NAMES, ROLES, type Role } from '../../auth/roles.ts';
import {
  Checkbox,
  Dialog,
  ErrorNote,
  Field,
  Note,
  Select,
  TextArea,
  useAction,
} from '../common/controls.tsx';
import type { Namespace } from '../common/namespaces.ts';
import { call, type Response } from '../common/operations.ts';
import { ACTIONS, CREATE_NAMESPACE, GLOBALS, type Grant } from '../common/permissions.ts';
import { visibleText } from '../common/visible-text.ts';

const EVERYWHERE = '*';
const NO_ROLE = '';

interface CreateProps {
  grant: Grant;
  namespaces: readonly Namespace[];
  onCreated: () => void;
  onClose: () => void;
}

export function CreateKey({ grant, namespaces, onCreated, onClose }: CreateProps) {
  const [name, setName] = useState('');
  const [role, setRole] = useState<Role | typeof NO_ROLE>(NO_ROLE);
  const [scope, setScope] = useState(EVERYWHERE);
  const [chosen, setChosen] = useState<readonly string[]>([]);
  const [others, setOthers] = useState('');
  const [expires, setExpires] = useState('');
  const [created, setCreated] = useState<Response<'keys.create'>>();
  const toggle = (permission: string) => (isChecked: boolean) => {
    setChosen(isChecked ? [...chosen, permission] : chosen.filter((one) => one !== permission));
  };
  const creating = useAction(async () => {
    const own = [...chosen, ...others.split(/\s+/).filter((line) => line !== '')];
    const permissions = role === NO_ROLE ? own : ROLES[role].permissions;
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
        <Select
          label="Role"
          value={role}
          onChoose={(chosenRole) => setRole(chosenRole as Role | typeof NO_ROLE)}
          options={[
            [NO_ROLE, 'None: choose permissions'],
            ...ROLE_NAMES.filter((name) => grant.mayGrant(ROLES[name].permissions)).map(
              (name) => [name, `${name}: ${ROLES[name].meaning}`] as const,
            ),
          ]}
        />
        {role === NO_ROLE && (
          <>
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
                {Object.entries(GLOBALS).map(([permission, meaning]) =>
                  checkbox(permission, meaning),
                )}
                {grant.has('*') && checkbox('*', 'everything')}
              </div>
              <TextArea
                label="More permissions, one in a line"
                rows={2}
                value={others}
                onInput={({ currentTarget }) => setOthers(currentTarget.value)}
              />
            </fieldset>
          </>
        )}
        <p class="hint">The new key can have only permissions that you have.</p>
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
