/** What a handler of an operation works with, on the main thread. */

import type { Permissions } from '../../auth/permissions.ts';
import type { Policy } from '../../policies/policy.ts';
import type { AuditDetails } from '../../registry/audit-entries.ts';
import type { Registry } from '../../registry/registry.ts';
import type { Store } from '../../registry/store/store.ts';

/** What an operation is done with. */
export interface OperationContext {
  registry: Registry;
  /** Those of the key of the request. */
  permissions: Permissions;
  nowMs: () => number;
  gateways: GatewayInfo;
  auditLog: AuditLog;
  /** Notes a change that was made, by the key of the request, in the audit log. */
  audit: (details: AuditDetails) => void;
}

/** What of the store the registry does not hold. */
export type AuditLog = Pick<Store, 'readAudit' | 'auditCount'>;

/** What gateways are served by, and where. */
export interface GatewayInfo {
  policies: () => readonly Policy[];
  addresses: GatewayAddresses;
}

/** @returns what the 200 holds. @throws ApiError */
export type OperationHandler = (job: OperationContext, input: unknown) => object;

/** Where gateways ask without a key, if anywhere. */
export interface GatewayAddresses {
  host: string;
  port: number | undefined;
  socket: string | undefined;
}
