/** The dialogs that add, change, delete and import overrides, and the export. */

import { useState } from 'preact/hooks';
import {
  Checkbox,
  Confirm,
  Dialog,
  ErrorNote,
  Field,
  Note,
  TextArea,
  useAction,
  useLoad,
} from '../common/controls.tsx';
import {
  dateTimeText,
  durationText,
  formatDuration,
  formatWhole,
  parseDuration,
} from '../common/format.ts';
import { useNamespaces } from '../common/namespaces.ts';
import { call, callAll, type Response } from '../common/operations.ts';
import type { Grant } from '../common/permissions.ts';
import { Name, Time } from '../common/text.tsx';
import { visibleText } from '../common/visible-text.ts';

interface OverrideName {
  namespaceId?: string;
  namespaceName?: string;
  identifier: string;
  cidr?: boolean;
}

export interface Override extends OverrideName {
  limit: number;
  duration: number;
  concurrency?: number;
  async: boolean;
  expires?: number;
  /** Absent while it cannot be read. */
  usage?: { applied: number; lastAppliedAt?: number };
}

/** The name or pattern of the namespace, or the id where the name would be read as a pattern. */
export function namespaceOf({ namespaceId, namespaceName }: OverrideName): string {
  return namespaceName ?? namespaceId ?? '';
}

/** Which override a dialog or a note means. */
function describe(override: OverrideName): string {
  return `${visibleText(override.identifier)} in ${visibleText(namespaceOf(override))}`;
}

/** What the identifier of an override is, in a table. */
export function kindOf({ identifier, cidr }: Pick<Override, 'identifier' | 'cidr'>): string {
  if (cidr === true) return 'CIDR block';
  return identifier.includes('*') ? 'pattern' : 'identifier';
}

/** weir has 110 000 overrides at most. */
const EXPORT_MAX = 200_000;

/** The time of an input; undefined if it is empty. */
function timeOf(end: string): number | undefined {
  return end === '' ? undefined : new Date(end).getTime();
}

interface EditProps {
  /** Undefined for a new one. */
  override: Override | undefined;
  namespace: string;
  /** Of a new one; '' without one. */
  newIdentifier?: string;
  onDone: (what: string) => void;
  onClose: () => void;
}

export function EditOverride({
  override,
  namespace,
  newIdentifier = '',
  onDone,
  onClose,
}: EditProps) {
  const isNew = override === undefined;
  const [name, setName] = useState(override?.namespaceName ?? namespace);
  const [identifier, setIdentifier] = useState(override?.identifier ?? newIdentifier);
  const [isCidr, setCidr] = useState(override?.cidr ?? false);
  const [limit, setLimit] = useState(String(override?.limit ?? ''));
  const [duration, setDuration] = useState(durationText(override?.duration ?? 60_000));
  const [concurrency, setConcurrency] = useState(String(override?.concurrency ?? ''));
  const [isAsync, setAsync] = useState(override?.async ?? false);
  const knownEnd = dateTimeText(override?.expires);
  const [end, setEnd] = useState(knownEnd);
  const saving = useAction(async () => {
    const namespaceId = override?.namespaceId;
    await call('ratelimits.setOverride', {
      ...(namespaceId === undefined ? { namespaceName: name } : { namespaceId }),
      identifier,
      cidr: isCidr,
      limit: Number(limit),
      duration: parseDuration(duration) ?? duration,
      concurrency: concurrency === '' ? undefined : Number(concurrency),
      async: isAsync,
      expires: end === knownEnd ? override?.expires : timeOf(end),
    });
    const set = override ?? { namespaceName: name, identifier };
    onDone(`The override of ${describe(set)} was ${isNew ? 'added' : 'changed'}.`);
  });
  return (
    <Dialog title={isNew ? 'Add an override' : 'Change the override'} onClose={onClose}>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          void saving.run();
        }}
      >
        <div class="fields">
          <Field
            label="Namespace"
            list="namespaces"
            required
            readOnly={!isNew}
            value={override?.namespaceId ?? name}
            onInput={({ currentTarget }) => setName(currentTarget.value)}
            hint="A name, or a pattern with *"
          />
          <Field
            label="Identifier"
            required
            readOnly={!isNew}
            value={identifier}
            onInput={({ currentTarget }) => setIdentifier(currentTarget.value)}
            hint={isCidr ? 'As in 203.0.113.0/24' : 'An identifier, or a pattern with *'}
          />
          <Field
            label="Limit"
            type="number"
            min="1"
            required
            value={limit}
            onInput={({ currentTarget }) => setLimit(currentTarget.value)}
            hint="Tokens in a window"
          />
          <Field
            label="Window"
            required
            value={duration}
            onInput={({ currentTarget }) => setDuration(currentTarget.value)}
            hint="As in 30s, 5m, 1h or 1d"
          />
          <Field
            label="Concurrency"
            type="number"
            min="0"
            value={concurrency}
            onInput={({ currentTarget }) => setConcurrency(currentTarget.value)}
            hint="Tokens of leases at once. Empty: as each acquire says"
          />
          <Field
            label="Expires"
            type="datetime-local"
            step="any"
            value={end}
            onInput={({ currentTarget }) => setEnd(currentTarget.value)}
            hint="Empty: never"
          />
        </div>
        {isNew && (
          <Checkbox
            label="CIDR block: applies to all addresses inside of it"
            isChecked={isCidr}
            onToggle={setCidr}
          />
        )}
        <Checkbox
          label="Asynchronous: decide by the counter, and deduct after the response"
          isChecked={isAsync}
          onToggle={setAsync}
        />
        <ErrorNote error={saving.error} />
        <div class="buttons">
          <button type="submit" class="primary" disabled={saving.isRunning}>
            Save
          </button>
          <button type="button" onClick={onClose}>
            Cancel
          </button>
        </div>
      </form>
    </Dialog>
  );
}

interface DeleteProps {
  override: Override;
  grant: Grant;
  onDone: (what: string) => void;
  onClose: () => void;
}

export function DeleteOverride({ override, grant, onDone, onClose }: DeleteProps) {
  const { namespaceId, namespaceName, identifier, cidr } = override;
  return (
    <Confirm
      title="Delete the override?"
      action="Delete override"
      run={async () => {
        const fields = { namespaceId, namespaceName, identifier, cidr };
        await call('ratelimits.deleteOverride', fields);
        onDone(`The override of ${describe(override)} was deleted.`);
      }}
      onClose={onClose}
    >
      <p>
        This is the override of <Name text={identifier} /> in the namespace{' '}
        <Name text={namespaceOf(override)} />.{' '}
        {`It sets the limit ${formatWhole(override.limit)} and the window `}
        {`${formatDuration(override.duration)}.`}
      </p>
      <Extent override={override} grant={grant} />
      <AfterDeletion override={override} grant={grant} />
    </Confirm>
  );
}

/** Names of namespaces that a dialog lists. */
const NAMES_SHOWN = 5;

/** How often an override was used, and in which namespaces it applies, as far as it is known. */
function Extent({ override, grant }: Pick<DeleteProps, 'override' | 'grant'>) {
  const { usage, namespaceId, namespaceName = '' } = override;
  const isScope = namespaceId === undefined && namespaceName.includes('*');
  const namespaces = useNamespaces(grant);
  const matching = (namespaces.data ?? []).filter(({ name }) => isMatch(namespaceName, name));
  const names = matching.slice(0, NAMES_SHOWN).map(({ name }) => visibleText(name));
  const more = matching.length - names.length;
  return (
    <>
      {usage !== undefined && (
        <p>
          {usage.applied === 0 ? (
            'It has never applied.'
          ) : (
            <>
              {`It has applied ${formatWhole(usage.applied)} times`}
              {usage.lastAppliedAt !== undefined && (
                <>
                  , last at <Time ms={usage.lastAppliedAt} />
                </>
              )}
              .
            </>
          )}
        </p>
      )}
      {isScope && namespaces.data !== undefined && (
        <p>
          {`Namespaces that match now: ${formatWhole(matching.length)}`}
          {names.length > 0 && ` (${names.join(', ')}${more > 0 ? `, ${more} more` : ''})`}.
        </p>
      )}
    </>
  );
}

/** Whether a pattern matches a name. Each `*` stands for any text. */
function isMatch(pattern: string, name: string): boolean {
  const parts = pattern.split('*').map((text) => text.replace(/[\\^$.+?()[\]{}|]/g, '\\$&'));
  return new RegExp(`^${parts.join('.*')}$`, 's').test(name);
}

type Explanation = Response<'ratelimits.explain'>;

/** The override of exactly an identifier, in the namespace of its explanation. */
export function exactOverrideOf(
  explanation: Explanation,
  identifier: string,
): Explanation['override'] {
  return matchesOf(explanation).find((override) => isExact(override, explanation, identifier));
}

/** The overrides that match, in order of precedence. Of a blocked identifier, none applies. */
function matchesOf({ override, otherOverrides }: Explanation) {
  return override === undefined ? otherOverrides : [override, ...otherOverrides];
}

function isExact(
  override: NonNullable<Explanation['override']>,
  { namespace }: Explanation,
  identifier: string,
): boolean {
  if (kindOf(override) !== 'identifier') return false;
  return override.identifier === identifier && override.namespace === namespace;
}

/** Which limit applies when an override is gone. */
function AfterDeletion({ override, grant }: Pick<DeleteProps, 'override' | 'grant'>) {
  const { namespaceId, namespaceName = '', identifier } = override;
  // What follows a pattern or a block depends on the identifier of the check.
  const isScope = namespaceId === undefined && namespaceName.includes('*');
  const isKnown = !isScope && kindOf(override) === 'identifier';
  const mayExplain = grant.mayInSome('read_namespace') && grant.mayInSome('read_override');
  const { data: explanation, isLoading } = useLoad(async () => {
    if (!isKnown || !mayExplain) return undefined;
    return call('ratelimits.explain', { namespace: namespaceOf(override), identifier });
  }, []);
  if (isLoading) return <p>Reading which limit applies then…</p>;
  if (explanation === undefined) {
    return (
      <p>
        From the next check on, the next override that matches the identifier of a check applies to
        it. Where none matches, the limit of the gateway policy or of the check itself applies.
      </p>
    );
  }
  const next = matchesOf(explanation).find((one) => !isExact(one, explanation, identifier));
  const { block } = explanation;
  if (block !== undefined) {
    return (
      <p>
        The identifier is blocked until <Time ms={block.expires} />. After that,{' '}
        {next === undefined ? 'no override applies.' : 'the next override that matches applies.'}
      </p>
    );
  }
  if (next === undefined) {
    const isGateway = explanation.policy !== undefined;
    return (
      <p>
        No other override matches. From the next check on,{' '}
        {isGateway && 'requests through the gateway have the limit of its policy, and '}
        {isGateway ? 'each other check has' : 'each check has'} the limit that it sends.
      </p>
    );
  }
  return (
    <p>
      From the next check on, the override of <Name text={next.identifier} /> in{' '}
      <Name text={next.namespace} /> applies:{' '}
      {`limit ${formatWhole(next.limit)}, window ${formatDuration(next.duration)}`}.
    </p>
  );
}

export async function exportOverrides(): Promise<void> {
  const { items } = await callAll(
    'ratelimits.exportOverrides',
    {},
    ({ overrides }) => overrides,
    EXPORT_MAX,
  );
  const text = JSON.stringify({ overrides: items }, undefined, 2);
  const url = URL.createObjectURL(new Blob([text], { type: 'application/json' }));
  const link = Object.assign(document.createElement('a'), {
    href: url,
    download: 'overrides.json',
  });
  link.click();
  // The download has begun by the next turn.
  setTimeout(() => URL.revokeObjectURL(url));
}

/** Reads the text of an export: an object with `overrides`, or a list. */
function parseImport(text: string): unknown {
  let content: unknown;
  try {
    content = JSON.parse(text);
  } catch (error) {
    throw new Error(`The text is not JSON: ${(error as Error).message}`);
  }
  return Array.isArray(content) ? content : (content as { overrides?: unknown })?.overrides;
}

interface ImportProps {
  onDone: (what: string) => void;
  onClose: () => void;
}

export function ImportOverrides({ onDone, onClose }: ImportProps) {
  const [text, setText] = useState('');
  const [validated, setValidated] = useState('');
  const importing = useAction(async (dryRun: boolean) => {
    const overrides = parseImport(text);
    const result = await call('ratelimits.importOverrides', { overrides, dryRun });
    const counts = `${result.created} new, ${result.updated} changed, ${result.unchanged} the same`;
    if (dryRun) setValidated(`The import is valid: ${counts}. Nothing was changed.`);
    else onDone(`The overrides were imported: ${counts}.`);
  });
  return (
    <Dialog title="Import overrides" onClose={onClose}>
      <p>All overrides are set, or none. Others stay as they are.</p>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          void importing.run(false);
        }}
      >
        <Field
          label="File of an export"
          type="file"
          accept="application/json,.json"
          onChange={async ({ currentTarget }) => {
            const [file] = currentTarget.files ?? [];
            if (file !== undefined) setText(await file.text());
          }}
        />
        <TextArea
          label="JSON"
          rows={8}
          required
          value={text}
          onInput={({ currentTarget }) => {
            setText(currentTarget.value);
            setValidated('');
          }}
        />
        <ErrorNote error={importing.error} />
        {validated !== '' && importing.error === undefined && (
          <Note kind="success">{validated}</Note>
        )}
        <div class="buttons">
          <button type="submit" class="primary" disabled={importing.isRunning}>
            Import
          </button>
          <button
            type="button"
            disabled={importing.isRunning || text === ''}
            onClick={() => importing.run(true)}
          >
            Validate only
          </button>
          <button type="button" onClick={onClose}>
            Cancel
          </button>
        </div>
      </form>
    </Dialog>
  );
}
