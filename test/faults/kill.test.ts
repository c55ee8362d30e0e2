/** `kill -9` in the middle of changes: nothing acknowledged is lost, nothing half-written is read. */

import { afterAll, expect, test } from 'vitest';
import { AUDIT_ENTRIES_MAX } from '../../src/limits.ts';
import { done, type Fields, operate } from '../support/api.ts';
import { allEntries, type Entry } from '../support/audit.ts';
import { check, LASTING_MS, request } from '../support/http.ts';
import { random } from '../support/random.ts';
import {
  type Running,
  removeDirectory,
  startServer,
  temporaryDirectory,
  until,
} from '../support/server.ts';
import { figure, newSeed, trials } from './promises.ts';

const KILLS = trials(10, 200);
const CLIENTS = 6;
/** Things that each client changes. */
const THINGS = 12;

const GONE = 'gone';

/** What a thing may be after a kill: as it was acknowledged last, or as the request on its way. */
class Thing {
  possible = new Set<string>([GONE]);
  begin(value: string): void {
    this.possible.add(value);
  }
  acknowledge(value: string): void {
    this.possible = new Set([value]);
  }
}

const dataDir = temporaryDirectory();
afterAll(() => removeDirectory(dataDir));

/** By what names it: the texts of an override, or the name of a key. */
const things = new Map<string, Thing>();
const thing = (name: string) => {
  const known = things.get(name) ?? new Thing();
  things.set(name, known);
  return known;
};
/** Keys by their names, as they were shown. */
const shown = new Map<string, { keyId: string; key: string }>();
/** Changes that were acknowledged since the last look at the audit log, as it tells of them. */
let told: string[] = [];
/** The newest entry at that look. */
let seen = 0;
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
async function change(
  server: Running,
  client: number,
  below: (n: number) => number,
  onAcknowledged: () => void,
) {
  for (;;) {
    const which = below(THINGS);
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

async function changeKey(server: Running, name: string) {
  const state = thing(name);
  const known = shown.get(name);
  if (known !== undefined) {
    state.begin(GONE);
    await done(server.port, 'keys.revoke', { keyId: known.keyId });
    state.acknowledge(GONE);
    told.push(`${known.keyId}: ${GONE}`);
    shown.delete(name);
    return;
  }
  // One whose answer was lost is nobody's; another name keeps them apart.
  state.begin('made');
  const made = await done(server.port, 'keys.create', { name, permissions: ['ratelimit.*.limit'] });
  shown.set(name, made as unknown as { keyId: string; key: string });
  state.acknowledge('made');
  told.push(`${made.keyId}: made`);
}

async function changeOverride(
  server: Running,
  client: number,
  at: string,
  below: (n: number) => number,
) {
  const namespaceName = below(3) === 0 ? `kill ${client}*` : `kill ${client}`;
  const identifier = below(2) === 0 ? `user_${at}` : `user_${at}_*`;
  const of = { namespaceName, identifier };
  const state = thing(`${namespaceName} ${identifier}`);
  if (below(4) === 0) {
    state.begin(GONE);
    const { status } = await operate(server.port, 'ratelimits.deleteOverride', of);
    if (status !== 200 && status !== 404) throw new Error(`${status}`);
    state.acknowledge(GONE);
    if (status === 200) told.push(`${namespaceName} ${identifier}: ${GONE}`);
    return;
  }
  const limit = ++limits;
  state.begin(String(limit));
  await done(server.port, 'ratelimits.setOverride', { ...of, limit, duration: LASTING_MS });
  state.acknowledge(String(limit));
  told.push(`${namespaceName} ${identifier}: ${limit}`);
  if (!namespaceName.endsWith('*')) namespaces.add(namespaceName);
}

async function allPages(server: Running, operation: 'ratelimits.exportOverrides' | 'keys.list') {
  const items: Fields[] = [];
  let cursor: unknown;
  do {
    const page = await done(server.port, operation, cursor === undefined ? {} : { cursor });
    items.push(...((page.overrides ?? page.keys) as Fields[]));
    cursor = page.cursor;
  } while (cursor !== undefined);
  return items;
}

/** What an entry tells of, and what became of it. */
function tellingOf({ action, target, after }: Entry): [string, string] {
  const { keyId, namespace, identifier } = target as Fields;
  if (action === 'key.create') return [`${keyId}`, 'made'];
  if (action === 'key.revoke') return [`${keyId}`, GONE];
  const became = action === 'override.delete' ? GONE : `${(after as Fields).limit}`;
  return [`${namespace} ${identifier}`, became];
}

/** Every acknowledged change has its entry, and the newest entries tell of what there is. */
async function verifyAudit(server: Running, there: ReadonlyMap<string, string>) {
  const entries = await allEntries(server);
  const changes = entries.filter(({ action }) => action !== 'namespace.create');
  const lately = changes.filter(({ id }) => id > seen).map((one) => tellingOf(one).join(': '));
  for (const one of told) {
    const at = lately.indexOf(one);
    expect([one, at >= 0]).toEqual([one, true]);
    lately.splice(at, 1);
  }
  // Each client has had one change on its way at most.
  if (seen > 0) expect(lately.length).toBeLessThanOrEqual(revoked + CLIENTS);
  const newest = new Map<string, string>();
  for (const one of changes) {
    const [what, became] = tellingOf(one);
    if (!newest.has(what)) newest.set(what, became);
  }
  for (const [what, became] of newest) {
    expect([what, became]).toEqual([what, there.get(what) ?? GONE]);
  }
  const untold = [...there.keys()].filter((what) => !newest.has(what));
  if (entries.length < AUDIT_ENTRIES_MAX) expect(untold).toEqual([]);
  expect(entries.map(({ id }) => id)).toEqual(entries.map((_, i) => entries[0].id - i));
  told = [];
  seen = entries[0]?.id ?? 0;
}

/** Compares what there is with what there may be, and goes on from there. */
async function verify(server: Running) {
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
  for (const [name, { possible }] of things) {
    const value = found.get(name) ?? GONE;
    expect([name, [...possible]]).toEqual([name, expect.arrayContaining([value])]);
    thing(name).acknowledge(value);
  }
  expect([...found.keys()].filter((name) => !things.has(name))).toEqual([]);
  // The start says what it loaded.
  const said = /\{[^\n]*"msg":"loaded"\}/;
  await until('it does', () => said.test(server.stderr()));
  const loaded = JSON.parse(said.exec(server.stderr())![0]);
  expect(loaded.overrides.exact + loaded.overrides.wildcard).toBe(overrides.length);
  expect(loaded.keys).toBe(keys.length);
  expect(loaded.namespaces).toBeGreaterThanOrEqual(namespaces.size);
  // And what is there is in force.
  for (const { namespaceName, identifier, limit } of overrides.slice(0, 3)) {
    if (`${namespaceName}${identifier}`.includes('*')) continue;
    const body = { namespace: namespaceName, identifier, limit: 1, duration: 1_000, cost: 0 };
    expect((await check(server.port, body)).limit).toBe(limit);
  }
  for (const [name, { key, keyId }] of shown) {
    if (!keys.some((one) => one.keyId === keyId)) {
      shown.delete(name);
      continue;
    }
    const headers = { Authorization: `Bearer ${key}` };
    const body = JSON.stringify({ identifier: 'a', limit: 1, duration: 1_000, cost: 0 });
    expect((await request(server.port, { headers, body })).status).not.toBe(401);
  }
  // A key whose answer was lost is revoked by its name.
  revoked = 0;
  for (const { name, keyId } of keys) {
    if (name === 'configured root key' || shown.has(`${name}`)) continue;
    await done(server.port, 'keys.revoke', { keyId });
    revoked++;
    thing(`${name}`).acknowledge(GONE);
  }
}

test(`nothing acknowledged is lost and nothing half-written is read over ${KILLS} kills`, async () => {
  const seed = newSeed();
  const below = random(seed);
  let acknowledged = 0;
  const options = { args: ['--counters', '1024', '--acceptors', '1'] };
  for (let kill = 0; kill < KILLS; kill++) {
    const server = await startServer(dataDir, options);
    await verify(server);
    const before = acknowledged;
    const clients = Array.from({ length: CLIENTS }, (_, client) => {
      return change(server, client, below, () => {
        acknowledged++;
      });
    });
    await until('a change is acknowledged', () => acknowledged > before);
    await new Promise((resolve) => setTimeout(resolve, below(150)));
    server.child.kill('SIGKILL');
    await server.exited;
    await Promise.all(clients);
  }
  const server = await startServer(dataDir, options);
  await verify(server);
  expect(await server.stop()).toEqual({ code: 0, signal: null });
  const changes = `${acknowledged} changes acknowledged`;
  figure('P4', 'kill -9 amid changes', `${KILLS} kills`, `${changes}, 0 lost; seed ${seed}`);
  expect(acknowledged).toBeGreaterThanOrEqual(KILLS);
}, 300_000);
