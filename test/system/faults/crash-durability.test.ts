/** `kill -9` during changes: no acknowledged change is lost, and no partial write is read. */

import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { AUDIT_ENTRIES_MAX } from '../../../src/core/constants.ts';
import { type AuditEntryFields, listAuditEntries } from '../../support/audit-log.ts';
import { useDataDirectory } from '../../support/data-directory.ts';
import { newSeed, recordMeasurement, trialCount } from '../../support/guarantees.ts';
import { LONGEST_WINDOW_MS, sendCheck, sendRequest } from '../../support/http.ts';
import { callOperation, callOperationOk, type Fields } from '../../support/operations.ts';
import { seededRandom } from '../../support/seeded-random.ts';
import { type ServerProcess, waitUntil } from '../../support/server.ts';

const KILLS = trialCount(3, 200);
const CLIENTS = 6;
/** Records that each client changes. */
const RECORDS_PER_CLIENT = 12;

const DELETED = 'deleted';

const own = useDataDirectory(['--counters', '1024', '--acceptors', '1', '--workers', '1']);

/**
 * The possible states of a record after a kill, by the texts of an override, or the name of a key:
 * the last acknowledged one, or that of a pending request.
 */
const possible = new Map<string, string[]>();
const acknowledge = (record: string, state: string) => possible.set(record, [state]);

/** Makes a change. Rejects if it is not acknowledged. */
async function change<T>(record: string, state: string, work: () => Promise<T>): Promise<T> {
  possible.set(record, [...(possible.get(record) ?? [DELETED]), state]);
  const result = await work();
  acknowledge(record, state);
  return result;
}
/** Keys by name, as the server returned them. */
const createdKeys = new Map<string, { keyId: string; key: string }>();
/** Changes acknowledged since the last reading of the audit log, in the format of its entries. */
let acknowledgedChanges: string[] = [];
/** The newest entry of that reading. */
let lastAuditId = 0;
/** Keys revoked since then because the responses to their creation were lost. */
let revoked = 0;
/** Makes every override's limit unique: an override set to its current value is no change. */
let limits = 0;
/** Namespaces with an acknowledged change. */
const namespaces = new Set<string>();

/**
 * Changes records one after the other until the server is killed.
 * @param onAcknowledged called for each acknowledged change
 */
async function changeUntilKilled(
  server: ServerProcess,
  client: number,
  below: (n: number) => number,
  onAcknowledged: () => void,
) {
  for (;;) {
    const index = below(RECORDS_PER_CLIENT);
    const at = `${client}_${index}`;
    try {
      if (index < 2) await changeKey(server, `key ${at}`);
      else await changeOverride(server, client, at, below);
      onAcknowledged();
    } catch {
      return;
    }
  }
}

async function changeKey({ port }: ServerProcess, name: string) {
  const known = createdKeys.get(name);
  if (known !== undefined) {
    const { keyId } = known;
    await change(name, DELETED, () => callOperationOk(port, 'keys.revoke', { keyId }));
    acknowledgedChanges.push(`${keyId}: ${DELETED}`);
    createdKeys.delete(name);
    return;
  }
  // If this response is lost, the key stays without an owner. Names tell such keys apart.
  const fields = { name, permissions: ['ratelimit.*.limit'] };
  const created = await change(name, 'created', () => callOperationOk(port, 'keys.create', fields));
  createdKeys.set(name, created as unknown as { keyId: string; key: string });
  acknowledgedChanges.push(`${created.keyId}: created`);
}

async function changeOverride(
  { port }: ServerProcess,
  client: number,
  at: string,
  below: (n: number) => number,
) {
  const namespaceName = below(3) === 0 ? `kill ${client}*` : `kill ${client}`;
  const identifier = below(2) === 0 ? `user_${at}` : `user_${at}_*`;
  const texts = { namespaceName, identifier };
  const record = `${namespaceName} ${identifier}`;
  if (below(4) === 0) {
    const status = await change(record, DELETED, async () => {
      const { status } = await callOperation(port, 'ratelimits.deleteOverride', texts);
      if (status !== 200 && status !== 404) throw new Error(`${status}`);
      return status;
    });
    if (status === 200) acknowledgedChanges.push(`${record}: ${DELETED}`);
    return;
  }
  const limit = ++limits;
  const fields = { ...texts, limit, duration: LONGEST_WINDOW_MS };
  await change(record, `${limit}`, () => callOperationOk(port, 'ratelimits.setOverride', fields));
  acknowledgedChanges.push(`${record}: ${limit}`);
  if (!namespaceName.endsWith('*')) namespaces.add(namespaceName);
}

async function allPages(
  server: ServerProcess,
  operation: 'ratelimits.exportOverrides' | 'keys.list',
) {
  const items: Fields[] = [];
  let next: Fields | undefined = {};
  while (next !== undefined) {
    const { cursor, overrides, keys }: Fields = await callOperationOk(server.port, operation, next);
    items.push(...((overrides ?? keys) as Fields[]));
    next = cursor === undefined ? undefined : { cursor };
  }
  return items;
}

/** The record that an audit entry names, and the record's new state. */
function describeEntry({ action, target, after }: AuditEntryFields): [string, string] {
  const { keyId, namespace, identifier } = target as Fields;
  if (action === 'key.create') return [`${keyId}`, 'created'];
  if (action === 'key.revoke') return [`${keyId}`, DELETED];
  const state = action === 'override.delete' ? DELETED : `${(after as Fields).limit}`;
  return [`${namespace} ${identifier}`, state];
}

/** Every acknowledged change has an audit entry, and the newest entries match the records. */
async function verifyAudit(server: ServerProcess, records: ReadonlyMap<string, string>) {
  const entries = await listAuditEntries(server);
  const changes = entries.filter(({ action }) => action !== 'namespace.create');
  const recent = changes
    .filter(({ id }) => id > lastAuditId)
    .map((one) => describeEntry(one).join(': '));
  for (const one of acknowledgedChanges) {
    const at = recent.indexOf(one);
    expect([one, at >= 0]).toEqual([one, true]);
    recent.splice(at, 1);
  }
  // Each client had at most one pending change.
  if (lastAuditId > 0) expect(recent.length).toBeLessThanOrEqual(revoked + CLIENTS);
  const newest = new Map<string, string>();
  for (const one of changes) {
    const [record, state] = describeEntry(one);
    if (!newest.has(record)) newest.set(record, state);
  }
  for (const [record, state] of newest) {
    expect([record, state]).toEqual([record, records.get(record) ?? DELETED]);
  }
  const withoutEntry = [...records.keys()].filter((record) => !newest.has(record));
  if (entries.length < AUDIT_ENTRIES_MAX) expect(withoutEntry).toEqual([]);
  expect(entries.map(({ id }) => id)).toEqual(entries.map((_, i) => entries[0].id - i));
  acknowledgedChanges = [];
  lastAuditId = entries[0]?.id ?? 0;
}

/** Compares the records with their possible states, and continues from the records found. */
async function verifyAfterRestart(server: ServerProcess) {
  const overrides = await allPages(server, 'ratelimits.exportOverrides');
  const keys = await allPages(server, 'keys.list');
  const made = keys.filter(({ name }) => name !== 'configured root key');
  const limitsFound = overrides.map((one): [string, string] => {
    return [`${one.namespaceName} ${one.identifier}`, String(one.limit)];
  });
  const keysBy = (field: 'keyId' | 'name') => {
    return made.map((key): [string, string] => [`${key[field]}`, 'created']);
  };
  await verifyAudit(server, new Map([...limitsFound, ...keysBy('keyId')]));
  const found = new Map([...limitsFound, ...keysBy('name')]);
  for (const [record, states] of possible) {
    const state = found.get(record) ?? DELETED;
    expect([record, states]).toEqual([record, expect.arrayContaining([state])]);
    acknowledge(record, state);
  }
  expect([...found.keys()].filter((record) => !possible.has(record))).toEqual([]);
  // The start logs the numbers of loaded records.
  const loadedRecord = /\{[^\n]*"msg":"loaded"\}/;
  await waitUntil('the start is logged', () => loadedRecord.test(server.stderr()));
  const loaded = JSON.parse(loadedRecord.exec(server.stderr())![0]);
  expect(loaded.overrides.exact + loaded.overrides.wildcard).toBe(overrides.length);
  expect(loaded.keys).toBe(keys.length);
  expect(loaded.namespaces).toBeGreaterThanOrEqual(namespaces.size);
  // The loaded overrides are active.
  for (const { namespaceName, identifier, limit } of overrides.slice(0, 3)) {
    if (`${namespaceName}${identifier}`.includes('*')) continue;
    const body = { namespace: namespaceName, identifier, limit: 1, duration: 1_000, cost: 0 };
    expect((await sendCheck(server.port, body)).limit).toBe(limit);
  }
  for (const [name, { key, keyId }] of createdKeys) {
    if (!keys.some((one) => one.keyId === keyId)) {
      createdKeys.delete(name);
      continue;
    }
    const headers = { Authorization: `Bearer ${key}` };
    const body = JSON.stringify({ identifier: 'a', limit: 1, duration: 1_000, cost: 0 });
    expect((await sendRequest(server.port, { headers, body })).status).not.toBe(401);
  }
  // A key whose response was lost is found by its name, and revoked.
  revoked = 0;
  for (const { name, keyId } of made) {
    if (createdKeys.has(`${name}`)) continue;
    await callOperationOk(server.port, 'keys.revoke', { keyId });
    revoked++;
    acknowledge(`${name}`, DELETED);
  }
}

test(`no acknowledged change is lost and no partial write is read after ${KILLS} kills`, async () => {
  const seed = newSeed();
  const below = seededRandom(seed);
  let acknowledged = 0;
  for (let kill = 0; kill < KILLS; kill++) {
    const server = await own.start();
    await verifyAfterRestart(server);
    const before = acknowledged;
    const clients = Array.from({ length: CLIENTS }, (_, client) => {
      return changeUntilKilled(server, client, below, () => {
        acknowledged++;
      });
    });
    await waitUntil('a change is acknowledged', () => acknowledged > before);
    await sleep(below(150));
    server.child.kill('SIGKILL');
    await server.exited;
    await Promise.all(clients);
  }
  const server = await own.start();
  await verifyAfterRestart(server);
  expect(await server.stop()).toEqual({ code: 0, signal: null });
  const changes = `${acknowledged} changes acknowledged, 0 lost; seed ${seed}`;
  recordMeasurement('P4', 'kill -9 during changes', `${KILLS} kills`, changes);
  expect(acknowledged).toBeGreaterThanOrEqual(KILLS);
}, 300_000);
