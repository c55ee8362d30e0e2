/** `kill -9` in the middle of changes: nothing acknowledged is lost, nothing half-written is read. */

import { afterAll, expect, test } from 'vitest';
import { AUDIT_ENTRIES_MAX } from '../../src/core/constants.ts';
import { type AuditEntryFields, listAuditEntries } from '../support/audit-log.ts';
import { newSeed, recordMeasurement, trialCount } from '../support/guarantees.ts';
import { LONGEST_WINDOW_MS, sendCheck, sendRequest } from '../support/http.ts';
import { callOperation, callOperationOk, type Fields } from '../support/operations.ts';
import { seededRandom } from '../support/seeded-random.ts';
import {
  removeDirectory,
  type ServerProcess,
  startServer,
  temporaryDirectory,
  waitUntil,
} from '../support/server.ts';

const KILLS = trialCount(10, 200);
const CLIENTS = 6;
/** Things that each client changes. */
const RECORDS_PER_CLIENT = 12;

const DELETED = 'gone';

/** What a thing may be after a kill: as it was acknowledged last, or as the request on its way. */
class ExpectedRecord {
  possibleValues = new Set<string>([DELETED]);
  beginChange(value: string): void {
    this.possibleValues.add(value);
  }
  acknowledge(value: string): void {
    this.possibleValues = new Set([value]);
  }
}

const dataDir = temporaryDirectory();
afterAll(() => removeDirectory(dataDir));

/** By what names it: the texts of an override, or the name of a key. */
const expectedRecords = new Map<string, ExpectedRecord>();
const expectedRecord = (name: string) => {
  const known = expectedRecords.get(name) ?? new ExpectedRecord();
  expectedRecords.set(name, known);
  return known;
};
/** Keys by their names, as they were shown. */
const createdKeys = new Map<string, { keyId: string; key: string }>();
/** Changes that were acknowledged since the last look at the audit log, as it tells of them. */
let acknowledgedChanges: string[] = [];
/** The newest entry at that look. */
let lastAuditId = 0;
/** Keys that were revoked since then, for their answers were lost. */
let revoked = 0;
/** So that no override is set to what it is already: that would be no change. */
let limits = 0;
/** Namespaces that a change was acknowledged in. */
const namespaces = new Set<string>();

/**
 * Changes things one after the other until the server is gone.
 * @param onAcknowledged called for each that is acknowledged
 */
async function changeUntilKilled(
  server: ServerProcess,
  client: number,
  below: (n: number) => number,
  onAcknowledged: () => void,
) {
  for (;;) {
    const which = below(RECORDS_PER_CLIENT);
    const at = `${client}_${which}`;
    try {
      if (which < 2) await changeKey(server, `key ${at}`);
      else await changeOverride(server, client, at, below);
      onAcknowledged();
    } catch {
      return;
    }
  }
}

async function changeKey(server: ServerProcess, name: string) {
  const state = expectedRecord(name);
  const known = createdKeys.get(name);
  if (known !== undefined) {
    state.beginChange(DELETED);
    await callOperationOk(server.port, 'keys.revoke', { keyId: known.keyId });
    state.acknowledge(DELETED);
    acknowledgedChanges.push(`${known.keyId}: ${DELETED}`);
    createdKeys.delete(name);
    return;
  }
  // One whose answer was lost is nobody's; another name keeps them apart.
  state.beginChange('made');
  const made = await callOperationOk(server.port, 'keys.create', {
    name,
    permissions: ['ratelimit.*.limit'],
  });
  createdKeys.set(name, made as unknown as { keyId: string; key: string });
  state.acknowledge('made');
  acknowledgedChanges.push(`${made.keyId}: made`);
}

async function changeOverride(
  server: ServerProcess,
  client: number,
  at: string,
  below: (n: number) => number,
) {
  const namespaceName = below(3) === 0 ? `kill ${client}*` : `kill ${client}`;
  const identifier = below(2) === 0 ? `user_${at}` : `user_${at}_*`;
  const of = { namespaceName, identifier };
  const state = expectedRecord(`${namespaceName} ${identifier}`);
  if (below(4) === 0) {
    state.beginChange(DELETED);
    const { status } = await callOperation(server.port, 'ratelimits.deleteOverride', of);
    if (status !== 200 && status !== 404) throw new Error(`${status}`);
    state.acknowledge(DELETED);
    if (status === 200) acknowledgedChanges.push(`${namespaceName} ${identifier}: ${DELETED}`);
    return;
  }
  const limit = ++limits;
  state.beginChange(String(limit));
  await callOperationOk(server.port, 'ratelimits.setOverride', {
    ...of,
    limit,
    duration: LONGEST_WINDOW_MS,
  });
  state.acknowledge(String(limit));
  acknowledgedChanges.push(`${namespaceName} ${identifier}: ${limit}`);
  if (!namespaceName.endsWith('*')) namespaces.add(namespaceName);
}

async function allPages(
  server: ServerProcess,
  operation: 'ratelimits.exportOverrides' | 'keys.list',
) {
  const items: Fields[] = [];
  let cursor: unknown;
  do {
    const page = await callOperationOk(
      server.port,
      operation,
      cursor === undefined ? {} : { cursor },
    );
    items.push(...((page.overrides ?? page.keys) as Fields[]));
    cursor = page.cursor;
  } while (cursor !== undefined);
  return items;
}

/** What an entry tells of, and what became of it. */
function describeEntry({ action, target, after }: AuditEntryFields): [string, string] {
  const { keyId, namespace, identifier } = target as Fields;
  if (action === 'key.create') return [`${keyId}`, 'made'];
  if (action === 'key.revoke') return [`${keyId}`, DELETED];
  const became = action === 'override.delete' ? DELETED : `${(after as Fields).limit}`;
  return [`${namespace} ${identifier}`, became];
}

/** Every acknowledged change has its entry, and the newest entries tell of what there is. */
async function verifyAudit(server: ServerProcess, there: ReadonlyMap<string, string>) {
  const entries = await listAuditEntries(server);
  const changes = entries.filter(({ action }) => action !== 'namespace.create');
  const lately = changes
    .filter(({ id }) => id > lastAuditId)
    .map((one) => describeEntry(one).join(': '));
  for (const one of acknowledgedChanges) {
    const at = lately.indexOf(one);
    expect([one, at >= 0]).toEqual([one, true]);
    lately.splice(at, 1);
  }
  // Each client has had one change on its way at most.
  if (lastAuditId > 0) expect(lately.length).toBeLessThanOrEqual(revoked + CLIENTS);
  const newest = new Map<string, string>();
  for (const one of changes) {
    const [what, became] = describeEntry(one);
    if (!newest.has(what)) newest.set(what, became);
  }
  for (const [what, became] of newest) {
    expect([what, became]).toEqual([what, there.get(what) ?? DELETED]);
  }
  const untold = [...there.keys()].filter((what) => !newest.has(what));
  if (entries.length < AUDIT_ENTRIES_MAX) expect(untold).toEqual([]);
  expect(entries.map(({ id }) => id)).toEqual(entries.map((_, i) => entries[0].id - i));
  acknowledgedChanges = [];
  lastAuditId = entries[0]?.id ?? 0;
}

/** Compares what there is with what there may be, and goes on from there. */
async function verifyAfterRestart(server: ServerProcess) {
  const overrides = await allPages(server, 'ratelimits.exportOverrides');
  const keys = await allPages(server, 'keys.list');
  const found = new Map(
    overrides.map((one) => [`${one.namespaceName} ${one.identifier}`, String(one.limit)]),
  );
  const there = new Map(found);
  for (const { name, keyId } of keys) {
    if (name !== 'configured root key') there.set(`${keyId}`, 'made');
  }
  await verifyAudit(server, there);
  for (const { name } of keys) if (name !== 'configured root key') found.set(`${name}`, 'made');
  for (const [name, { possibleValues }] of expectedRecords) {
    const value = found.get(name) ?? DELETED;
    expect([name, [...possibleValues]]).toEqual([name, expect.arrayContaining([value])]);
    expectedRecord(name).acknowledge(value);
  }
  expect([...found.keys()].filter((name) => !expectedRecords.has(name))).toEqual([]);
  // The start says what it loaded.
  const said = /\{[^\n]*"msg":"loaded"\}/;
  await waitUntil('it does', () => said.test(server.stderr()));
  const loaded = JSON.parse(said.exec(server.stderr())![0]);
  expect(loaded.overrides.exact + loaded.overrides.wildcard).toBe(overrides.length);
  expect(loaded.keys).toBe(keys.length);
  expect(loaded.namespaces).toBeGreaterThanOrEqual(namespaces.size);
  // And what is there is in force.
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
  // A key whose answer was lost is revoked by its name.
  revoked = 0;
  for (const { name, keyId } of keys) {
    if (name === 'configured root key' || createdKeys.has(`${name}`)) continue;
    await callOperationOk(server.port, 'keys.revoke', { keyId });
    revoked++;
    expectedRecord(`${name}`).acknowledge(DELETED);
  }
}

test(`nothing acknowledged is lost and nothing half-written is read over ${KILLS} kills`, async () => {
  const seed = newSeed();
  const below = seededRandom(seed);
  let acknowledged = 0;
  const options = { args: ['--counters', '1024', '--acceptors', '1'] };
  for (let kill = 0; kill < KILLS; kill++) {
    const server = await startServer(dataDir, options);
    await verifyAfterRestart(server);
    const before = acknowledged;
    const clients = Array.from({ length: CLIENTS }, (_, client) => {
      return changeUntilKilled(server, client, below, () => {
        acknowledged++;
      });
    });
    await waitUntil('a change is acknowledged', () => acknowledged > before);
    await new Promise((resolve) => setTimeout(resolve, below(150)));
    server.child.kill('SIGKILL');
    await server.exited;
    await Promise.all(clients);
  }
  const server = await startServer(dataDir, options);
  await verifyAfterRestart(server);
  expect(await server.stop()).toEqual({ code: 0, signal: null });
  const changes = `${acknowledged} changes acknowledged`;
  recordMeasurement(
    'P4',
    'kill -9 amid changes',
    `${KILLS} kills`,
    `${changes}, 0 lost; seed ${seed}`,
  );
  expect(acknowledged).toBeGreaterThanOrEqual(KILLS);
}, 300_000);
