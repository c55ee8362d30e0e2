/**
 * Records changes of policies in the audit log, on the main thread. The store has the policies that
 * were last recorded. A start and SIGHUP compare them with the configuration file, so changes that
 * were made while no server ran are recorded too. Policies are active whether or not the store can
 * be written. If it cannot, a warning is logged, and the next comparison records the changes.
 */

import { isDeepStrictEqual } from 'node:util';
import type { Log } from '../core/log.ts';
import type { Policy } from '../policies/policy.ts';
import {
  type AuditDetails,
  policyCreation,
  policyDeletion,
  policyUpdate,
} from './audit-entries.ts';
import type { Registry } from './registry.ts';
import type { Writer } from './writer.ts';

export class PolicyAuditor {
  readonly #registry: Registry;
  readonly #writer: Writer;
  readonly #log: Log;
  readonly #nowMs: () => number;

  constructor(registry: Registry, writer: Writer, log: Log, nowMs: () => number) {
    this.#registry = registry;
    this.#writer = writer;
    this.#log = log;
    this.#nowMs = nowMs;
  }

  /** Resolves when the entries are durable or the store has failed. Never rejects. */
  async recordChanges(policies: readonly Policy[]): Promise<void> {
    if (areRecorded(this.#registry, policies)) return;
    try {
      await this.#writer.submit(0, () => {
        recordDifferences(this.#registry, policies, this.#nowMs());
        return {};
      });
    } catch (error) {
      const reason = (error as Error).message;
      this.#log.warn(`the audit log lacks the last changes of policies until a reload: ${reason}`);
    }
  }
}

function recordDifferences(registry: Registry, policies: readonly Policy[], at: number): void {
  const record = (details: AuditDetails) => {
    registry.audit({ at, ...details, keyId: null, by: 'configuration file' });
  };
  for (const policy of policies) {
    if (isRecorded(registry, policy)) continue;
    const recorded = registry.policy(policy.namespace);
    record(recorded === undefined ? policyCreation(policy) : policyUpdate(recorded, policy));
    registry.putPolicy(policy);
  }
  const inFile = new Set(policies.map(({ namespace }) => namespace));
  for (const recorded of registry.policies()) {
    if (inFile.has(recorded.namespace)) continue;
    record(policyDeletion(recorded));
    registry.removePolicy(recorded);
  }
}

function areRecorded(registry: Registry, policies: readonly Policy[]): boolean {
  if (registry.policies().length !== policies.length) return false;
  return policies.every((policy) => isRecorded(registry, policy));
}

function isRecorded(registry: Registry, policy: Policy): boolean {
  const stored = registry.policy(policy.namespace);
  if (stored === undefined) return false;
  const { row: _, ...recorded } = stored;
  return isDeepStrictEqual(recorded, policy);
}
