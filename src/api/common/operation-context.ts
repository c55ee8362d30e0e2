/** What a handler of an operation gets, on the main thread. */

import type { Static, TObject } from 'typebox';
import type { Analytics } from '../../analytics/analytics.ts';
import type { OverrideUsage } from '../../analytics/usage-rows.ts';
import type { Permissions } from '../../auth/permissions.ts';
import type { Eventual } from '../../core/eventual.ts';
import type { Validator } from '../../core/schema.ts';
import type { TurnBudget } from '../../core/turn-budget.ts';
import type { OverrideTables } from '../../overrides/tables.ts';
import type { Policy } from '../../policies/policy.ts';
import type { RecentDecisions } from '../../recent-decisions/reader.ts';
import type { AuditDetails } from '../../registry/audit-entries.ts';
import type { Registry } from '../../registry/registry.ts';
import type { Store } from '../../registry/store/store.ts';

export interface OperationContext {
  registry: Registry;
  /** Of the request's key. */
  permissions: Permissions;
  nowMs: () => number;
  gateways: GatewayInfo;
  auditLog: AuditLog;
  overrides: OverrideMatcher;
  usage: UsageQueries;
  /** Undefined with WEIR_ANALYTICS=off. */
  analytics: AnalyticsQueries | undefined;
  /** Undefined with WEIR_RECENT_DECISIONS=off. */
  recentDecisions: RecentDecisionQueries | undefined;
  /** Of the main thread, for long reads. */
  turns: TurnBudget;
  /** Validates an input, and notes the unknown fields that v1 ignores. @throws ApiError (400) */
  validate: <S extends TObject>(validator: Validator<S>, input: unknown) => Static<S>;
  /** Adds an entry by the request's key to the audit log. */
  audit: (details: AuditDetails) => void;
}

/** What was counted by namespace and identifier. */
export type AnalyticsQueries = Pick<
  Analytics,
  'totals' | 'timeline' | 'identifiers' | 'search' | 'deniedOf'
>;

export type RecentDecisionQueries = Pick<
  RecentDecisions,
  'sinceMs' | 'identityOf' | 'find' | 'findByThread' | 'read' | 'decisions'
>;

/** How often each override was used. */
export interface UsageQueries {
  /** Unix time in ms from which on checks were counted. */
  readonly sinceMs: number;
  /** @returns undefined if it cannot be read at the moment */
  usageOf(id: string): OverrideUsage | undefined;
}

/** The part of the store that the registry does not keep in memory. */
export type AuditLog = Pick<Store, 'readAudit' | 'auditCount'>;

/** The overrides that are published, or are being published. */
export type OverrideMatcher = Pick<OverrideTables, 'match'>;

/** The policies of gateways, and where gateways send checks without a key. */
export interface GatewayInfo {
  policies: () => readonly Policy[];
  addresses: GatewayAddresses;
}

/**
 * The result of a handler that has deleted a part of a namespace, because one transaction for all
 * of it would take too long. The executor makes this part durable, and calls the handler again
 * with this object.
 */
export class UnfinishedDeletion {
  readonly namespaceId: string;
  /** How many of its overrides are deleted so far. */
  readonly overrides: number;
  /** How many are left of those that it had at first. */
  readonly left: number;

  constructor(namespaceId: string, overrides: number, left: number) {
    this.namespaceId = namespaceId;
    this.overrides = overrides;
    this.left = left;
  }
}

/**
 * @param unfinished what the call before has returned for this request, if it was not the last
 * @returns the object of the 200 response: of a read, it may come in a later turn. @throws ApiError
 */
export type OperationHandler<Response extends object = object> = (
  context: OperationContext,
  input: unknown,
  unfinished?: UnfinishedDeletion,
) => Eventual<Response> | UnfinishedDeletion;

/** Where weir listens for gateways: both are undefined without such a listener. */
export interface GatewayAddresses {
  host: string;
  port: number | undefined;
  socket: string | undefined;
}
