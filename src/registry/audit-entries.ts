/**
 * The entries of the audit log, one kind for each kind of change. An entry describes its target as
 * it was at the time, because the key or override may be deleted later. Lists in an entry are
 * truncated, so that one change cannot fill the log. Also writes entries to the server's log.
 */

import type { KeyRecord } from '../auth/keys.ts';
import { AUDIT_NAMESPACES_MAX, AUDIT_PERMISSIONS_MAX } from '../core/constants.ts';
import type { Log } from '../core/log.ts';
import { isPattern } from '../overrides/pattern.ts';
import type { Policy } from '../policies/policy.ts';
import type { Override, Registry } from './registry.ts';
import type { AuditEntry, ImportCounts, NamespaceRecord, WithRow } from './store/schema.ts';
import type { Change } from './store/store.ts';

/** An entry without the time and the author of the change. */
export type AuditDetails = Omit<AuditEntry, 'at' | 'keyId' | 'keyName' | 'by' | 'user'>;

export function keyCreation(key: KeyRecord): AuditDetails {
  return { action: 'key.create', target: keyTarget(key), after: keyGrant(key) };
}

export function keyRevocation(key: KeyRecord): AuditDetails {
  return { action: 'key.revoke', target: keyTarget(key), before: keyGrant(key) };
}

function keyTarget({ id: keyId, name }: KeyRecord): object {
  return { keyId, name };
}

function keyGrant({ permissions, expiresMs: expires }: KeyRecord): object {
  const listed = permissions.slice(0, AUDIT_PERMISSIONS_MAX);
  return { permissions: listed, permissionCount: permissions.length, expires };
}

export function namespaceCreation({
  id: namespaceId,
  name: namespace,
}: NamespaceRecord): AuditDetails {
  return { action: 'namespace.create', target: { namespaceId, namespace } };
}

/** @param overrideCount of the overrides that were deleted with it */
export function namespaceDeletion(
  { id: namespaceId, name: namespace }: NamespaceRecord,
  overrideCount: number,
): AuditDetails {
  const target = { namespaceId, namespace };
  return { action: 'namespace.delete', target, before: { overrideCount } };
}

/** Of an override, or of a block. At least one of `before` and `after` is defined. */
export function overrideChange(
  registry: Registry,
  before: Override | undefined,
  after: Override | undefined,
): AuditDetails {
  const override = (after ?? before)!;
  const { id, scope, identifier, isCidr: cidr, isBlocking } = override;
  const namespace = registry.namespaceOf(override);
  const namespaceId = isPattern(scope) ? {} : { namespaceId: scope };
  const place = { namespace, ...namespaceId, identifier, ...(cidr && { cidr }) };
  const target = isBlocking === true ? { blockId: id, ...place } : { overrideId: id, ...place };
  const change =
    before === undefined ? 'create' : after === undefined ? ('delete' as const) : 'update';
  return {
    action: `${isBlocking === true ? 'block' : 'override'}.${change}`,
    target,
    ...(before && { before: auditedValues(before) }),
    ...(after && { after: auditedValues(after) }),
  };
}

function auditedValues(override: Override): object {
  const { limit, durationMs: duration, concurrency, isAsync, expiresMs: expires } = override;
  const { isBlocking, reason } = override;
  if (isBlocking === true) return { expires, ...(reason !== undefined && { reason }) };
  const leases = concurrency !== undefined && { concurrency };
  const values = { limit, duration, ...leases, async: isAsync };
  return { ...values, ...(expires !== undefined && { expires }) };
}

/**
 * @param hold its namespace by its name, and the tokens that its end has released
 * @param namespaceId undefined if the namespace is not durable
 */
export function holdEnd(
  hold: { namespace: string; identifier: string; kind: string; handle: string; released: number },
  namespaceId: string | undefined,
): AuditDetails {
  const { released, ...names } = hold;
  const target = { ...names, ...(namespaceId !== undefined && { namespaceId }) };
  return { action: 'hold.end', target, after: { released } };
}

/** @param namespaces names and patterns */
export function overridesImport(
  namespaces: ReadonlySet<string>,
  counts: ImportCounts,
): AuditDetails {
  return { action: 'overrides.import', target: namespacesTarget(namespaces), counts };
}

/**
 * Of many overrides at a time.
 * @param namespaces names and patterns
 */
export function overridesDeletion(
  namespaces: ReadonlySet<string>,
  overrideCount: number,
): AuditDetails {
  const target = namespacesTarget(namespaces);
  return { action: 'overrides.delete', target, before: { overrideCount } };
}

function namespacesTarget(namespaces: ReadonlySet<string>): object {
  const listed = [...namespaces].slice(0, AUDIT_NAMESPACES_MAX);
  return { namespaces: listed, namespaceCount: namespaces.size };
}

export function policyCreation({ namespace, ...after }: Policy): AuditDetails {
  return { action: 'policy.create', target: { namespace }, after };
}

export function policyUpdate(known: WithRow<Policy>, policy: Policy): AuditDetails {
  const { namespace, row: _, ...before } = known;
  const { namespace: __, ...after } = policy;
  return { action: 'policy.update', target: { namespace }, before, after };
}

export function policyDeletion({ namespace, row: _, ...before }: WithRow<Policy>): AuditDetails {
  return { action: 'policy.delete', target: { namespace }, before };
}

/** An entry as in API responses and in the server's log. */
export function publicEntry({
  row: id,
  at,
  action,
  keyId,
  keyName,
  by,
  user,
  ...rest
}: WithRow<AuditEntry>): AuditEntry & { id: number } {
  const author = {
    ...(keyName !== undefined && { keyName }),
    ...(by !== undefined && { by }),
    ...(user !== undefined && { user }),
  };
  return { id, at, action, keyId, ...author, ...rest };
}

/** @param changes durable changes; one line is logged for each audit entry among them */
export function logAudit(log: Log, changes: readonly Change[]): void {
  for (const change of changes) {
    if (change.table === 'audit') log.info(publicEntry(change.after!), 'audit');
  }
}
