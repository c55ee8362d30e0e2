/** Calls every operation with every kind of key for every kind of namespace. */

import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { DOCUMENTED } from '../../src/api/operations/documentation.ts';
import { OPERATION_NAMES } from '../../src/api/operations/main-operations.ts';
import { NO_LEASE_ID, NO_RESERVATION_ID } from '../../src/api/texts/examples.ts';
import { permissionsOf } from '../../src/api/texts/operation-texts.ts';
import {
  CREATE_NAMESPACE,
  GLOBAL_PERMISSIONS,
  NAMESPACE_ACTIONS,
  Permissions,
  readPermission,
} from '../../src/auth/permissions.ts';
import { AMOUNT_MAX } from '../../src/core/constants.ts';
import { permissionsTables } from '../../tools/docs/permissions.ts';
import { IS_LONG, recordMeasurement } from '../support/guarantees.ts';
import {
  LONGEST_WINDOW_MS,
  type ParsedResponse,
  readMetric,
  sendRequest,
} from '../support/http.ts';
import {
  COUNTER_OPERATION_NAMES,
  callOperation,
  callOperationOk,
  type Fields,
  type Operation,
  pathAndMethodOf,
} from '../support/operations.ts';
import { overrideId } from '../support/override-model.ts';
import {
  ROOT_KEY,
  removeDirectory,
  type ServerProcess,
  startServer,
  temporaryDirectory,
} from '../support/server.ts';
import { addKey, addRecords, withStore } from '../support/store.ts';

const OURS = 'rlns_ours';
const THEIRS = 'rlns_theirs';
const ACTIONS = [
  ...['limit', 'read_namespace', 'set_override', 'read_override', 'delete_override'],
  ...['refund', 'reset', 'read_analytics', 'delete_namespace'],
];

/** A way to refer to a namespace in a request. */
interface NamespaceCase {
  name: string;
  fields: Fields;
  /** The id with which a permission for one namespace would be sufficient. */
  id?: string;
  /** Whether a permitted request gets a 200. */
  exists: boolean;
  /** Whether the operation would have to create the namespace. */
  creates?: boolean;
  /** Whether a key without the permission gets the response for an unknown record. */
  isHidden?: boolean;
}
const TARGETS: NamespaceCase[] = [
  { name: 'by id', fields: { namespaceId: OURS }, id: OURS, exists: true },
  { name: 'by name', fields: { namespaceName: 'ours' }, id: OURS, exists: true },
  { name: 'a pattern', fields: { namespaceName: 'our*' }, exists: true },
  { name: 'unknown name', fields: { namespaceName: 'unknown' }, exists: false, creates: true },
  { name: 'unknown id', fields: { namespaceId: 'rlns_no' }, id: 'rlns_no', exists: false },
];
/** A pattern is no name of a namespace. */
const NAME_TARGETS = TARGETS.map((target) => {
  return { ...target, exists: target.exists && target.name !== 'a pattern' };
});
const LIMIT_TARGETS: NamespaceCase[] = [
  { name: 'by name', fields: { namespace: 'ours' }, id: OURS, exists: true },
  { name: 'unknown name', fields: { namespace: 'unknown' }, exists: false, creates: true },
];
/** For fields that accept an id or a name. */
const ID_OR_NAME_TARGETS: NamespaceCase[] = [
  ...LIMIT_TARGETS,
  { name: 'by id', fields: { namespace: OURS }, id: OURS, exists: true },
  { name: 'unknown id', fields: { namespace: 'rlns_no' }, id: 'rlns_no', exists: false },
];
const V2_TARGETS: NamespaceCase[] = [
  ...ID_OR_NAME_TARGETS,
  { name: 'a pattern', fields: { namespace: 'our*' }, exists: true },
];
const EVERYWHERE: NamespaceCase[] = [{ name: 'all', fields: {}, exists: true }];

interface OperationCase {
  route: Operation;
  permission: string;
  /** A second permission that is required. */
  also?: string | undefined;
  fields: Fields;
  targets: NamespaceCase[];
}
const identifier = 'an override';
const duration = 60_000;
const counted = { identifier, duration: LONGEST_WINDOW_MS, reset: LONGEST_WINDOW_MS, cost: 1 };
const check = { identifier, limit: 5, duration, cost: 0 };
const values = { identifier, limit: 5, duration };
/** A permission for one namespace is sufficient to see that namespace. */
const SOME: NamespaceCase[] = [{ name: 'some', fields: {}, id: 'any', exists: true }];
/** None of them is there, so that each key gets the same response. */
const DELETED_TARGETS: NamespaceCase[] = [
  { name: 'unknown id', fields: { namespaceId: 'rlns_no' }, id: 'rlns_no', exists: false },
  { name: 'a pattern', fields: { namespaceName: 'our*' }, exists: false },
  { name: 'unknown name', fields: { namespaceName: 'unknown' }, exists: false },
];
const UNKNOWN_HOLD: NamespaceCase[] = [
  { name: 'unknown hold', fields: {}, id: 'any', exists: false, isHidden: true },
];
/** A renewal of an unknown lease is no error. */
const ENDED_LEASE = UNKNOWN_HOLD.map((target) => ({ ...target, exists: true }));
const NOWHERE: NamespaceCase[] = [{ name: 'unknown', fields: {}, exists: false }];
const known = (targets: NamespaceCase[]) => targets.filter(({ creates }) => !creates);
const missing = (targets: NamespaceCase[]) => targets.map((one) => ({ ...one, exists: false }));
const READ_TARGETS = V2_TARGETS.map((target) => ({ ...target, creates: false }));
const imported = { overrides: [{ namespaceName: 'our*', ...values }] };
const ttl = 60_000;
const reservation = { reservationId: NO_RESERVATION_ID };
const lease = { leaseId: NO_LEASE_ID };
const acquired = { identifier, limit: AMOUNT_MAX, ttl };
const made = { name: 'made', permissions: ['keys.create'] };

const row = (
  route: Operation,
  permission: string,
  fields: Fields,
  targets: NamespaceCase[],
  also?: string,
): OperationCase => ({ route, permission, fields, targets, also });
const ROWS: OperationCase[] = [
  row('ratelimits.limit', 'limit', check, LIMIT_TARGETS),
  row('ratelimits.setOverride', 'set_override', values, known(TARGETS)),
  row('ratelimits.getOverride', 'read_override', { identifier }, TARGETS),
  row('ratelimits.listOverrides', 'read_override', {}, [...TARGETS, ...SOME]),
  row('ratelimits.deleteOverride', 'delete_override', { identifier: 'no' }, missing(TARGETS)),
  row('ratelimits.exportOverrides', 'read_override', {}, EVERYWHERE),
  row('ratelimits.importOverrides', 'set_override', imported, EVERYWHERE),
  row('ratelimits.setBlock', 'set_override', { identifier, expires: AMOUNT_MAX }, NAME_TARGETS),
  row('ratelimits.listBlocks', 'read_override', {}, [...NAME_TARGETS, ...SOME]),
  row('ratelimits.deleteBlock', 'delete_override', { identifier: 'no' }, missing(NAME_TARGETS)),
  row('ratelimits.listNamespaces', 'read_namespace', {}, SOME),
  row('ratelimits.deleteNamespace', 'delete_namespace', {}, DELETED_TARGETS),
  row('ratelimits.listPolicies', 'read_namespace', {}, SOME),
  row('keys.create', 'keys.create', made, EVERYWHERE),
  row('keys.list', 'keys.read', {}, EVERYWHERE),
  row('keys.revoke', 'keys.revoke', { keyId: 'key_none' }, NOWHERE),
  row('audit.list', 'read_audit', {}, EVERYWHERE),
  row('analytics.getNamespaces', 'read_analytics', {}, SOME),
  row('analytics.getTimeline', 'read_analytics', {}, NAME_TARGETS),
  row('analytics.getIdentifiers', 'read_analytics', {}, [...NAME_TARGETS, ...SOME]),
  row('analytics.getDecisions', 'read_analytics', {}, [...NAME_TARGETS, ...SOME]),
  row('analytics.searchIdentifiers', 'read_analytics', { prefix: 'a' }, [...NAME_TARGETS, ...SOME]),
  row('ratelimits.refund', 'refund', counted, ID_OR_NAME_TARGETS),
  row('ratelimits.reset', 'reset', { identifier }, ID_OR_NAME_TARGETS),
  row('ratelimits.endHold', 'reset', { identifier, handle: '1c-09f3' }, missing(READ_TARGETS)),
  row('ratelimits.inspect', 'read_namespace', { identifier }, ID_OR_NAME_TARGETS),
  row('ratelimits.explain', 'read_namespace', { identifier }, ID_OR_NAME_TARGETS, 'read_override'),
  row('ratelimits.findIdentifier', 'read_namespace', { identifier }, SOME),
  row('ratelimits.reserve', 'limit', { ...check, ttl }, known(ID_OR_NAME_TARGETS)),
  row('ratelimits.commit', 'limit', { ...reservation, cost: 1 }, UNKNOWN_HOLD),
  row('ratelimits.cancel', 'limit', reservation, UNKNOWN_HOLD),
  row('ratelimits.acquire', 'limit', acquired, known(ID_OR_NAME_TARGETS)),
  row('ratelimits.renew', 'limit', { ...lease, ttl }, ENDED_LEASE),
  row('ratelimits.release', 'limit', lease, UNKNOWN_HOLD),
  row('ratelimit.limit', 'limit', check, ID_OR_NAME_TARGETS),
  row('ratelimit.multiLimit', 'limit', check, ID_OR_NAME_TARGETS),
  row('ratelimit.setOverride', 'set_override', values, known(V2_TARGETS)),
  row('ratelimit.getOverride', 'read_override', { identifier }, READ_TARGETS),
  row('ratelimit.listOverrides', 'read_override', {}, READ_TARGETS),
  row('ratelimit.deleteOverride', 'delete_override', { identifier: 'no' }, missing(READ_TARGETS)),
];

/** The permissions of valid keys. */
const GRANTED = [
  '*',
  'ratelimit.*.create_namespace',
  'keys.create',
  'keys.read',
  'keys.revoke',
  'read_audit',
  ...ACTIONS.flatMap((action) => {
    return ['*', OURS, THEIRS].map((namespace) => `ratelimit.${namespace}.${action}`);
  }),
];
/** The permissions of keys that have two, separated by a space. */
const GRANTED_PAIRS = ['*', OURS, THEIRS].map((namespace) => {
  return `ratelimit.${namespace}.read_namespace ratelimit.${namespace}.read_override`;
});
const REJECTED = ['none', 'malformed', 'unknown', 'expired', 'revoked'] as const;

/** All keys for the first namespace of an operation; for the others those that may be permitted. */
function grantedFor({ permission, also, targets }: OperationCase, target: NamespaceCase): string[] {
  const all = [...GRANTED, ...GRANTED_PAIRS, 'nothing'];
  if (target === targets[0] || IS_LONG) return all;
  const related = all.filter((granted) => {
    return granted.includes(permission) || (also !== undefined && granted.includes(also));
  });
  return ['*', 'ratelimit.*.create_namespace', 'nothing', ...related];
}

const everywhere = (permission: string): string => {
  const isNamespaceAction = ACTIONS.includes(permission);
  return isNamespaceAction ? `ratelimit.*.${permission}` : permission;
};

/** The first permission of an operation that a key lacks. @param granted its permissions */
function missingPermission(
  { permission, also }: OperationCase,
  { id }: NamespaceCase,
  granted: string,
): string | undefined {
  const grants = granted.split(' ');
  return [permission, ...(also === undefined ? [] : [also])].find((required) => {
    const sufficient = ['*', everywhere(required), `ratelimit.${id}.${required}`];
    return !grants.some((one) => {
      return sufficient.includes(one) || (id === 'any' && one.endsWith(`.${required}`));
    });
  });
}

function expectedStatus(row: OperationCase, target: NamespaceCase, granted: string): number {
  const { permission } = row;
  const { exists, creates, isHidden } = target;
  if (!isHidden && missingPermission(row, target, granted) !== undefined) return 403;
  // A check with a cost of 0 creates no namespace, but needs the permission to create one.
  if (permission === 'limit' && creates) return granted === '*' ? 200 : 404;
  // A correction accepts the name of a namespace that does not exist.
  if (['refund', 'reset'].includes(permission) && creates) return 200;
  return exists ? 200 : 404;
}

const dataDir = temporaryDirectory();
const keys = new Map<string, string>();
let server: ServerProcess;
beforeAll(async () => {
  withStore(dataDir, (store) => {
    addRecords(store, 'namespaces', [
      { id: OURS, name: 'ours', createdMs: 1 },
      { id: THEIRS, name: 'theirs', createdMs: 1 },
    ]);
    const override = { identifier, limit: 5, durationMs: duration, isAsync: false, createdMs: 1 };
    addRecords(store, 'overrides', [
      { id: overrideId(1), scope: OURS, ...override },
      { id: overrideId(2), scope: 'our*', ...override },
      { id: overrideId(3), scope: THEIRS, ...override },
    ]);
    for (const granted of [...GRANTED, ...GRANTED_PAIRS]) {
      keys.set(granted, addKey(store, { permissions: granted.split(' ') }));
    }
    keys.set('nothing', addKey(store, { permissions: [] }));
    keys.set('expired', addKey(store, { permissions: ['*'], expiresMs: 1 }));
    keys.set('revoked', addKey(store, { id: 'key_revoked', permissions: ['*'] }));
  });
  server = await startServer(dataDir, {
    args: ['--acceptors', '1', '--workers', '1', '--counters', '1024'],
  });
  await callOperationOk(server.port, 'keys.revoke', { keyId: 'key_revoked' });
});
afterAll(async () => {
  expect(await server.stop()).toEqual({ code: 0, signal: null });
  removeDirectory(dataDir);
});

const callRoute = (route: Operation, fields: Fields, key: string): Promise<ParsedResponse> => {
  const sent = route === 'ratelimit.multiLimit' ? [fields] : fields;
  return callOperation(server.port, route, sent, key);
};

test('every operation has a row in the matrix', () => {
  const routes = ROWS.map(({ route }) => route);
  expect(routes.sort()).toEqual([...OPERATION_NAMES, ...COUNTER_OPERATION_NAMES].sort());
});

test('every operation documents the permission that the matrix tests', () => {
  for (const row of ROWS) {
    const { requires } = DOCUMENTED.find(({ name }) => name === row.route)!;
    const { permissions, also } = permissionsOf(requires);
    const [inAll, inOne] = permissions;
    expect([row.route, inAll]).toEqual([row.route, everywhere(row.permission)]);
    const second = row.also && [`ratelimit.*.${row.also}`, `ratelimit.<namespaceId>.${row.also}`];
    expect([row.route, also]).toEqual([row.route, second]);
    const hasId = row.targets.some(({ id }) => id !== undefined);
    const isImport = row.route === 'ratelimits.importOverrides';
    const expected = hasId || isImport ? `ratelimit.<namespaceId>.${row.permission}` : undefined;
    expect([row.route, inOne]).toEqual([row.route, expected]);
  }
});

test('the documentation names every permission, and what it is for', () => {
  const documented = permissionsTables();
  for (const name of [...NAMESPACE_ACTIONS, ...GLOBAL_PERMISSIONS, CREATE_NAMESPACE]) {
    expect([name, documented.includes(`\`${name}\``)]).toEqual([name, true]);
  }
});

test('every operation requires its permission, for every key and namespace', async () => {
  let cells = 0;
  const wrong: string[] = [];
  const overrides = () => readMetric(server.adminUrl, 'weir_overrides{kind="exact"}');
  for (const row of ROWS) {
    for (const target of row.targets) {
      const fields = { ...row.fields, ...target.fields };
      for (const granted of grantedFor(row, target)) {
        const response = await callRoute(row.route, fields, keys.get(granted)!);
        const status = expectedStatus(row, target, granted);
        cells++;
        if (response.status !== status) {
          wrong.push(`${row.route} ${target.name} ${granted}: ${response.status}, not ${status}`);
        }
        if (status !== 403) continue;
        // The error names the missing permission.
        const { error } = JSON.parse(response.body);
        const missing = everywhere(missingPermission(row, target, granted)!);
        expect(error.message ?? error.detail).toContain(`"${missing}"`);
      }
      for (const rejected of target === row.targets[0] ? REJECTED : []) {
        const key = { none: '', malformed: 'a b', unknown: 'wrong' }[rejected as 'none'];
        const response = await callRoute(row.route, fields, key ?? keys.get(rejected)!);
        cells++;
        // v2 answers a request without a key with a 400.
        const isV2 = pathAndMethodOf(row.route).path.startsWith('/v2/');
        const status = isV2 && (rejected === 'none' || rejected === 'malformed') ? 400 : 401;
        if (response.status !== status) wrong.push(`${row.route} ${rejected}: ${response.status}`);
      }
    }
  }
  recordMeasurement('P5', 'operation x key x namespace', `${cells} cells`, `${wrong.length} wrong`);
  expect(wrong).toEqual([]);
  expect(await overrides()).toBe(2);
});

test('other methods get a 405, also with the root key', async () => {
  for (const operation of [...OPERATION_NAMES, ...COUNTER_OPERATION_NAMES]) {
    const { path, method } = pathAndMethodOf(operation);
    for (const other of ['GET', 'POST', 'PUT', 'DELETE', 'PATCH', 'OPTIONS']) {
      if (other === method) continue;
      const response = await sendRequest(server.port, { method: other, path });
      expect([response.status, response.headers.allow]).toEqual([405, method]);
    }
    const headers = { Authorization: `Bearer ${ROOT_KEY}` };
    const url = server.url + path;
    const head = await fetch(url, { method: 'HEAD', headers });
    expect([head.status, head.headers.get('allow')]).toEqual([405, method]);
  }
});

test('a list of namespaces contains only those that the key may read', async () => {
  const visible = async (granted: string) => {
    return callOperationOk(server.port, 'ratelimits.listNamespaces', {}, keys.get(granted)!);
  };
  const ours = { id: OURS, name: 'ours' };
  expect(await visible(`ratelimit.${OURS}.read_namespace`)).toEqual({
    namespaces: [ours],
    total: 1,
  });
  expect((await visible('ratelimit.*.read_namespace')).namespaces).toContainEqual(ours);
});

describe('permissions', () => {
  test('are parsed in all valid forms and no others', () => {
    for (const permission of GRANTED)
      expect([permission, readPermission(permission)]).not.toContain(false);
    expect(readPermission(`ratelimit.${OURS}.limit`)).toEqual({ namespaceId: OURS });
    for (const text of [
      ...['', '**', 'limit', 'keys.*', 'keys.delete', 'audit', 'read_audit ', 'ratelimit.*'],
      ...['ratelimit.*.read_audit', 'ratelimit.*.*', 'ratelimit.*.nothing', 'ratelimit.ours.limit'],
      ...['ratelimit..limit', `ratelimit.${OURS}.create_namespace`, `ratelimit.${OURS}.limit `],
      ...['ratelimit.*.limit\n', 'ratelimit.*.constructor', 'RATELIMIT.*.limit'],
    ]) {
      expect([text, readPermission(text)]).toEqual([text, false]);
    }
  });

  test('include themselves, and those for all namespaces include those for one', () => {
    const includes = (granted: string, permission: string) => {
      return new Permissions([granted]).grants(permission);
    };
    for (const a of GRANTED) {
      for (const b of GRANTED) {
        const action = /^ratelimit\.\*\.(\w+)$/.exec(a)?.[1];
        const expected = a === '*' || a === b || (action !== undefined && b.endsWith(`.${action}`));
        expect([a, b, includes(a, b)]).toEqual([a, b, expected]);
      }
    }
  });
});
