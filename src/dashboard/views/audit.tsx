/** The audit log, the newest entries first. */

import { useState } from 'preact/hooks';
import type { ViewProps } from '../common/context.ts';
import { ErrorNote, Unavailable, useAction, useLoad } from '../common/controls.tsx';
import { formatWhole } from '../common/format.ts';
import { JsonView, wordsOf } from '../common/json-view.tsx';
import { call, callAll, type Response } from '../common/operations.ts';
import type { Grant } from '../common/permissions.ts';
import { Name, Time } from '../common/text.tsx';

type Entry = Response<'audit.list'>['entries'][number];

const KEYS_MAX = 1_100;

export function AuditView({ grant }: ViewProps) {
  const [older, setOlder] = useState<readonly Entry[]>([]);
  const [cursor, setCursor] = useState<string>();
  const names = useKeyNames(grant);
  const first = useLoad(async () => {
    if (!grant.has('read_audit')) return undefined;
    const page = await call('audit.list');
    setOlder([]);
    setCursor(page.cursor);
    return page;
  }, []);
  const loading = useAction(async () => {
    const page = await call('audit.list', { cursor });
    setOlder([...older, ...page.entries]);
    setCursor(page.cursor);
  });
  const entries = [...(first.data?.entries ?? []), ...older];
  return (
    <>
      <h1 tabIndex={-1}>Audit log</h1>
      <div class="toolbar">
        <div class="buttons">
          <button type="button" disabled={first.isLoading} onClick={first.reload}>
            Load again
          </button>
        </div>
      </div>
      {!grant.has('read_audit') && (
        <Unavailable permission="read_audit" what="read the audit log" />
      )}
      <ErrorNote error={first.error ?? loading.error} />
      {first.data !== undefined && entries.length === 0 && (
        <p class="empty">The audit log is empty.</p>
      )}
      {entries.length > 0 && (
        <>
          <p class="hint">Changes: {formatWhole(first.data!.total)}</p>
          <ol class="entries">
            {entries.map((entry) => (
              <EntryItem key={entry.id} entry={entry} names={names} />
            ))}
          </ol>
        </>
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
}

/** The names of keys by id, where the key of the session may list them. */
function useKeyNames(grant: Grant): ReadonlyMap<string, string> {
  const keys = useLoad(async () => {
    if (!grant.has('keys.read')) return [];
    return (await callAll('keys.list', {}, ({ keys }) => keys, KEYS_MAX)).items;
  }, []);
  return new Map(keys.data?.map(({ keyId, name }) => [keyId, name]));
}

function EntryItem({ entry, names }: { entry: Entry; names: ReadonlyMap<string, string> }) {
  const { at, action, keyId, by, user, target, before, after, counts } = entry;
  const name = keyId === null ? undefined : names.get(keyId);
  return (
    <li>
      <p>
        <Time ms={at} />
        <strong>{action}</strong>
        <span>
          by {name !== undefined && <Name text={name} />}{' '}
          {keyId === null ? by : <code>{keyId}</code>} {user !== undefined && <Name text={user} />}
        </span>
      </p>
      <ul class="details">
        {Object.entries(target).map(([key, value]) => (
          <li key={key}>
            <span class="label">{wordsOf(key)}</span> <Value name={key} value={value} />
          </li>
        ))}
        {changesOf(before, after).map(([key, was, is]) => (
          <li key={`value ${key}`}>
            <span class="label">{wordsOf(key)}</span>{' '}
            {was !== undefined && <Value name={key} value={was} />}
            {was !== undefined && is !== undefined && ' → '}
            {is !== undefined && <Value name={key} value={is} />}
          </li>
        ))}
        {counts !== undefined && (
          <li>
            {`${counts.created} new, ${counts.updated} changed, ${counts.unchanged} the same`}
          </li>
        )}
      </ul>
    </li>
  );
}

type Values = Record<string, unknown>;

/** The values that a change has added, removed or replaced. */
function changesOf(before: Values = {}, after: Values = {}): [string, unknown, unknown][] {
  const names = [...new Set([...Object.keys(before), ...Object.keys(after)])];
  return names
    .map((name): [string, unknown, unknown] => [name, before[name], after[name]])
    .filter(([, was, is]) => JSON.stringify(was) !== JSON.stringify(is));
}

/** A value in one line. */
function Value({ name, value }: { name: string; value: unknown }) {
  if (Array.isArray(value) && value.every((item) => typeof item === 'string')) {
    return <Name text={value.join(', ')} />;
  }
  if (typeof value === 'object' && value !== null) return <Name text={JSON.stringify(value)} />;
  return <JsonView name={name} value={value} />;
}
