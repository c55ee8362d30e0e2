/** The audit log, the newest entries first. The server filters it. The address has the filter. */

import type { ViewProps } from '../common/context.ts';
import { ErrorNote, Field, Select, Unavailable, useAction, useLoad } from '../common/controls.tsx';
import { Copy } from '../common/copy.tsx';
import { dateTimeText, formatDuration, formatWhole } from '../common/format.ts';
import { JsonView, wordsOf } from '../common/json-view.tsx';
import { useKeyNames } from '../common/key-names.ts';
import { NamespaceField } from '../common/namespace-field.tsx';
import { call, type Response } from '../common/operations.ts';
import { linkTo, navigate, useStateAt } from '../common/router.ts';
import { type Column, SortedTable } from '../common/sorted-table.tsx';
import { Name, Time } from '../common/text.tsx';

type Page = Response<'audit.list'>;
type Entry = Page['entries'][number];

/** Entries that a button loads. The server reads a part of the log for each request. */
const ENTRIES_WANTED = 100;

/** All actions. The type makes the list complete. */
const ACTIONS: Record<Entry['action'], string> = {
  'block.create': 'identifier blocked',
  'block.update': 'block changed',
  'block.delete': 'block ended',
  'hold.end': 'a hold ended',
  'key.create': 'key created',
  'key.revoke': 'key revoked',
  'namespace.create': 'namespace created',
  'namespace.delete': 'namespace deleted',
  'override.create': 'override added',
  'override.update': 'override changed',
  'override.delete': 'override deleted',
  'overrides.delete': 'overrides deleted',
  'overrides.import': 'overrides imported',
  'policy.create': 'policy added',
  'policy.update': 'policy changed',
  'policy.delete': 'policy deleted',
};

/** As text; '' for any. Times are in Unix ms. */
interface Filter {
  action: string;
  by: string;
  namespace: string;
  target: string;
  start: string;
  end: string;
}

const NO_FILTER: Filter = { action: '', by: '', namespace: '', target: '', start: '', end: '' };
const NAMES = Object.keys(NO_FILTER) as (keyof Filter)[];

function filterOf(query: URLSearchParams): Filter {
  return {
    ...NO_FILTER,
    ...Object.fromEntries(NAMES.map((name) => [name, query.get(name) ?? ''])),
  };
}

/** The fields with a value: those of the address, and of the request. */
function givenFields(filter: Filter): Partial<Filter> {
  return Object.fromEntries(Object.entries(filter).filter(([, value]) => value !== ''));
}

/** Loads entries until there are enough, or no more. */
async function loadEntries(filter: Filter, first?: string): Promise<Page> {
  const entries: Entry[] = [];
  let cursor = first;
  let page: Page;
  do {
    page = await call('audit.list', { ...givenFields(filter), cursor });
    entries.push(...page.entries);
    cursor = page.cursor;
  } while (cursor !== undefined && entries.length < ENTRIES_WANTED);
  return { ...page, entries };
}

export function AuditView({ grant, route }: ViewProps) {
  const filter = filterOf(route.query);
  const address = linkTo('audit', '', { ...givenFields(filter) });
  const [form, setForm] = useStateAt(address, filter);
  const [older, setOlder] = useStateAt<Page | undefined>(address, undefined);
  const names = useKeyNames(grant);
  const mayRead = grant.has('read_audit');
  const first = useLoad(async () => (mayRead ? loadEntries(filter) : undefined), [address]);
  const { cursor } = older ?? first.data ?? {};
  const loading = useAction(async () => {
    const page = await loadEntries(filter, cursor);
    setOlder({ ...page, entries: [...(older?.entries ?? []), ...page.entries] });
  });
  const entries = [...(first.data?.entries ?? []), ...(older?.entries ?? [])];
  const go = (changes: Partial<Filter>) => {
    navigate(linkTo('audit', '', { ...givenFields({ ...form, ...changes }) }));
  };
  const isFiltered = Object.keys(givenFields(filter)).length > 0;
  return (
    <>
      <h1 tabIndex={-1}>Audit log</h1>
      {!mayRead && <Unavailable permission="read_audit" what="read the audit log" />}
      {mayRead && (
        <form
          onSubmit={(event) => {
            event.preventDefault();
            go({});
          }}
        >
          <div class="fields">
            <Select
              label="Action"
              value={form.action}
              onChoose={(action) => go({ action })}
              options={[['', 'all'], ...Object.entries(ACTIONS)]}
            />
            <datalist id="authors">
              {[...names].map(([keyId, name]) => (
                <option key={keyId} value={keyId} label={name} />
              ))}
            </datalist>
            <Field
              label="By"
              list="authors"
              placeholder="a key or user"
              value={form.by}
              onInput={({ currentTarget }) => setForm({ ...form, by: currentTarget.value })}
            />
            <NamespaceField
              grant={grant}
              value={form.namespace}
              onChange={(namespace) => setForm({ ...form, namespace })}
            />
            <Field
              label="Target contains"
              placeholder="a part of it"
              value={form.target}
              onInput={({ currentTarget }) => setForm({ ...form, target: currentTarget.value })}
            />
            <Field
              label="From"
              type="datetime-local"
              value={dateTimeText(timeOf(form.start))}
              onInput={({ currentTarget }) => setForm({ ...form, start: msOf(currentTarget) })}
            />
            <Field
              label="Until"
              type="datetime-local"
              value={dateTimeText(timeOf(form.end))}
              onInput={({ currentTarget }) => setForm({ ...form, end: msOf(currentTarget) })}
            />
          </div>
          <div class="buttons">
            <button type="submit" class="primary">
              Show
            </button>
            {isFiltered && <a href={linkTo('audit')}>Show all</a>}
            <button type="button" disabled={first.isLoading} onClick={() => reload()}>
              Load again
            </button>
          </div>
        </form>
      )}
      <ErrorNote error={first.error ?? loading.error} />
      {first.data !== undefined && entries.length === 0 && (
        <p class="empty">{isFiltered ? 'No entry matches.' : 'The audit log is empty.'}</p>
      )}
      {entries.length > 0 && (
        <SortedTable
          caption={`${formatWhole(entries.length)} of ${formatWhole(first.data!.total)} changes`}
          columns={columnsOf(names)}
          rows={entries}
          keyOf={({ id }) => String(id)}
          isPartial={cursor !== undefined}
        />
      )}
      {cursor !== undefined && (
        <div class="buttons">
          <button type="button" disabled={loading.isRunning} onClick={() => loading.run()}>
            Older entries
          </button>
        </div>
      )}
    </>
  );

  function reload(): void {
    setOlder(undefined);
    first.reload();
  }
}

function timeOf(ms: string): number | undefined {
  return ms === '' ? undefined : Number(ms);
}

function msOf({ value }: HTMLInputElement): string {
  return value === '' ? '' : String(new Date(value).getTime());
}

function columnsOf(names: ReadonlyMap<string, string>): Column<Entry>[] {
  const authorOf = ({ keyId, keyName, by, user }: Entry) => {
    return user ?? (keyId === null ? by : (keyName ?? names.get(keyId) ?? keyId));
  };
  return [
    { name: 'Time', cell: ({ at }) => <Time ms={at} />, value: ({ at }) => at },
    {
      name: 'Action',
      cell: ({ action }) => <code>{action}</code>,
      value: ({ action }) => action,
      isHeader: true,
    },
    {
      name: 'By',
      cell: (entry) => (
        <>
          <Name text={authorOf(entry) ?? ''} />
          {entry.by === 'user' && <span class="hint"> (user)</span>}
          {entry.keyId !== null && <Copy text={entry.keyId} />}
        </>
      ),
      value: authorOf,
    },
    { name: 'Target', cell: Target, value: nameOf },
    { name: 'Change', cell: Change },
  ];
}

function nameOf({ target }: Entry): string | undefined {
  return target.identifier ?? target.name ?? target.namespace;
}

/** What was changed: its names, and its ids below them. */
function Target({ target }: Entry) {
  const fields = Object.entries(target);
  const isId = ([name]: [string, unknown]) => /Id$/.test(name);
  return (
    <>
      <ul class="details">
        {fields
          .filter((field) => !isId(field))
          .map(([name, value]) => (
            <li key={name}>
              <span class="label">{wordsOf(name)}</span> <Value name={name} value={value} />
            </li>
          ))}
      </ul>
      <small class="details">
        {fields.filter(isId).map(([name, value]) => (
          <code key={name} title={wordsOf(name)}>
            {String(value)}
          </code>
        ))}
      </small>
    </>
  );
}

function Change({ before, after, counts }: Entry) {
  if (counts !== undefined) {
    return <>{`${counts.created} new, ${counts.updated} changed, ${counts.unchanged} the same`}</>;
  }
  const changes = changesOf(before, after);
  if (changes.length === 0) return null;
  return (
    <ul class="details">
      {changes.map(([key, was, is]) => (
        <li key={key}>
          <span class="label">{wordsOf(key)}</span>{' '}
          {was !== undefined && <Value name={key} value={was} />}
          {was !== undefined && is !== undefined && ' → '}
          {is !== undefined && <Value name={key} value={is} />}
        </li>
      ))}
    </ul>
  );
}

type Fields = Record<string, unknown>;

/** The values that a change has added, removed or replaced. */
function changesOf(before: Fields = {}, after: Fields = {}): [string, unknown, unknown][] {
  const names = [...new Set([...Object.keys(before), ...Object.keys(after)])];
  return names
    .map((name): [string, unknown, unknown] => [name, before[name], after[name]])
    .filter(([, was, is]) => JSON.stringify(was) !== JSON.stringify(is))
    .filter(([name]) => name !== 'permissionCount' || isCut(before) || isCut(after));
}

/** Whether an entry has only the first permissions of a key. */
function isCut({ permissions = [], permissionCount = 0 }: Fields): boolean {
  return (permissions as unknown[]).length !== permissionCount;
}

type PolicyWindow = Response<'ratelimits.listPolicies'>['policies'][number]['windows'][number];

function isWindow(value: unknown): value is PolicyWindow {
  return typeof value === 'object' && value !== null && 'limit' in value && 'duration' in value;
}

/** A window of a policy, such as "100 per 1 min, sliding". */
function windowText({ limit, duration, algorithm, burst }: PolicyWindow): string {
  const rule = algorithm === undefined ? '' : `, ${algorithm}`;
  const extra = burst === undefined ? '' : `, burst ${formatWhole(burst)}`;
  return `${formatWhole(limit)} per ${formatDuration(duration)}${rule}${extra}`;
}

/** A value in one line. */
function Value({ name, value }: { name: string; value: unknown }) {
  if (Array.isArray(value) && value.every((item) => typeof item === 'string')) {
    return <Name text={value.join(', ')} />;
  }
  if (Array.isArray(value) && value.length > 0 && value.every(isWindow)) {
    return <Name text={value.map(windowText).join('; ')} />;
  }
  if (typeof value === 'object' && value !== null) return <Name text={JSON.stringify(value)} />;
  return <JsonView name={name} value={value} />;
}
