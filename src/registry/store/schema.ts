/**
 * The only list of the tables of the store, and their records. Creation and upgrade of a store, the
 * registry in Redis, and `weir migrate` derive from it. The names and the order of the tables, the
 * fields of records, and the versions are stored: they do not change.
 */

import type { KeyRecord } from '../../auth/keys.ts';
import { AMOUNT_MAX } from '../../core/constants.ts';
import { canonicalBlock } from '../../overrides/cidr.ts';
import { isPattern } from '../../overrides/pattern.ts';
import type { Policy } from '../../policies/policy.ts';

export interface NamespaceRecord {
  id: string;
  name: string;
  createdMs: number;
  /** The row of the namespace of the same name that was deleted last. */
  predecessor?: number;
  /** Set when it is deleted. The record is kept for its row, which its successor refers to. */
  deletedMs?: number;
}

export interface OverrideRecord {
  id: string;
  /** The id of a namespace, or a pattern of names. */
  scope: string;
  identifier: string;
  /** Whether `identifier` is a CIDR block. Only set where it is true. */
  isCidr?: boolean;
  limit: number;
  durationMs: number;
  isAsync: boolean;
  createdMs: number;
  /** Tokens that leases may use at once. Only set where the override replaces that limit too. */
  concurrency?: number;
  /** The end, Unix time in ms: from then on it does not apply. Only set where there is one. */
  expiresMs?: number;
  /**
   * Whether it is a block: it denies the one identifier, in which a star is a character, and has an
   * end. An override of the same identifier has a record of its own. Only set where it is true.
   */
  isBlocking?: true;
  /** Why the identifier is blocked, in the words of who blocked it. Only of a block. */
  reason?: string;
}

export const AUDIT_ACTIONS = [
  'block.create',
  'block.update',
  'block.delete',
  'hold.end',
  'key.create',
  'key.revoke',
  'namespace.create',
  'namespace.delete',
  'override.create',
  'override.update',
  'override.delete',
  'overrides.delete',
  'overrides.import',
  'policy.create',
  'policy.update',
  'policy.delete',
] as const;

/**
 * The sources of changes that are made without an API key. `expiry`: an override has ended. `user`:
 * a user of the dashboard whom a proxy has signed in.
 */
export const AUDIT_SOURCES = [
  'configuration file',
  'command line',
  'first start',
  'expiry',
  'user',
] as const;

/** The record of one change. */
export interface AuditEntry {
  /** Unix time in ms. */
  at: number;
  action: (typeof AUDIT_ACTIONS)[number];
  /** The id of the API key that made the change; null without one. */
  keyId: string | null;
  /** The name of this key. Entries of older versions have none. */
  keyName?: string;
  /** Set if `keyId` is null. */
  by?: (typeof AUDIT_SOURCES)[number];
  /** The name of the user. Set if `by` is `user`. */
  user?: string;
  /** The key, override, policy or namespaces that changed. */
  target: object;
  before?: object;
  after?: object;
  /** For an import, instead of `before` and `after`. */
  counts?: ImportCounts;
}

/** The numbers of overrides in an import. */
export interface ImportCounts {
  created: number;
  updated: number;
  unchanged: number;
}

/** A record and its row. The row never changes, and later records have higher rows. */
export type WithRow<T> = T & { row: number };

export interface RecordTypes {
  keys: KeyRecord;
  namespaces: NamespaceRecord;
  overrides: OverrideRecord;
  audit: AuditEntry;
  /** Compared with the configuration file at a start, to find changes made while no server ran. */
  policies: Policy;
}

export type TableName = keyof RecordTypes;

const isText = (value: unknown) => typeof value === 'string';
export const isObject = (value: unknown) => typeof value === 'object' && value !== null;
export const isCount = (value: unknown) => Number.isSafeInteger(value) && (value as number) >= 0;
const isOptionalCount = (value: unknown) => value === undefined || isCount(value);
const isAmount = (value: unknown) => isCount(value) && (value as number) <= AMOUNT_MAX;
const isOptionalAmount = (value: unknown) => value === undefined || isAmount(value);
const isDigest = (value: unknown) => isText(value) && /^[0-9a-f]{64}$/.test(value as string);
const isOverrideId = (value: unknown) =>
  isText(value) && /^rlor_[0-9a-f]{24}$/.test(value as string);
const areTexts = (value: unknown) => Array.isArray(value) && value.every(isText);

type FieldCheck = (value: unknown, record: Readonly<Record<string, unknown>>) => boolean;

interface Table<Record> {
  /** The version of the store that has added it. */
  since: number;
  /** What a message calls one of its records, and several. Without it, they are not counted. */
  nouns?: readonly [one: string, many: string];
  /** What stays the same when a record changes. */
  identity: (record: WithRow<Record>) => readonly unknown[];
  /** What the fields of a record from Redis must be. */
  fields: { readonly [Name in keyof Record]?: FieldCheck };
}

/** In their order in Redis, where the scripts name them by their position. */
export const TABLES: { readonly [Name in TableName]: Table<RecordTypes[Name]> } = {
  keys: {
    since: 1,
    nouns: ['key', 'keys'],
    identity: ({ id, digest }) => [id, digest],
    fields: {
      id: isText,
      digest: isDigest,
      name: isText,
      permissions: areTexts,
      createdMs: isCount,
      expiresMs: (value) => value === null || isCount(value),
    },
  },
  namespaces: {
    since: 1,
    nouns: ['namespace', 'namespaces'],
    identity: ({ id, name }) => [id, name],
    fields: {
      id: isText,
      name: isText,
      createdMs: isCount,
      predecessor: isOptionalCount,
      deletedMs: isOptionalCount,
    },
  },
  overrides: {
    since: 2,
    nouns: ['override', 'overrides'],
    identity: ({ row, scope, identifier, isCidr, isBlocking }) => {
      return [row, scope, identifier, isCidr === true, isBlocking === true];
    },
    fields: {
      id: isOverrideId,
      scope: isText,
      identifier: isText,
      isCidr: (value, { identifier }) =>
        value === undefined ||
        (value === true && canonicalBlock(String(identifier)) === identifier),
      limit: isAmount,
      durationMs: isAmount,
      isAsync: (value) => typeof value === 'boolean',
      createdMs: isCount,
      concurrency: isOptionalAmount,
      expiresMs: (value, { isBlocking }) =>
        isBlocking === true ? isCount(value) : isOptionalCount(value),
      isBlocking: (value, { scope, isCidr }) =>
        value === undefined ||
        (value === true && isCidr === undefined && !isPattern(String(scope))),
      reason: (value) => value === undefined || isText(value),
    },
  },
  audit: {
    since: 3,
    nouns: ['entry of the audit log', 'entries of the audit log'],
    // An entry never changes.
    identity: ({ row: _, ...fields }) => [fields],
    fields: { at: isCount, action: isText, target: isObject },
  },
  policies: {
    since: 3,
    identity: ({ namespace }) => [namespace],
    fields: { namespace: isText },
  },
};

export const TABLE_NAMES = Object.keys(TABLES) as TableName[];
export const SCHEMA_VERSION = Math.max(...TABLE_NAMES.map((name) => TABLES[name].since));
