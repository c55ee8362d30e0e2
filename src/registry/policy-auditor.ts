/**
 * Audits changes of policies. The store has the policies that were last audited; entries are made
 * from how the configuration file differs from them. The file is read at a start, which so finds
 * changes made while no server ran, and on SIGHUP. Policies are active whether or not the store can
 * be written: a difference that cannot be written is a warning in the log, and is written the next
 * time. On the main thread.
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

  /** Resolves when the entries are durable, or cannot be made so now. Never rejects. */
  async recordChanges(policies: readonly Policy[]): Promise<void> {
    if (areRecorded(this.#registry, policies)) return;
    try {
      await this.#writer.submit(0, () => {
        recordDifferences(this.#registry, policies, this.#nowMs());
        return {};
      });
    } catch (error) {
      const why = (error as Error).message;
      this.#log.warn(`the audit log lacks the last changes of policies until a reload: ${why}`);
    }
  }
}

function recordDifferences(registry: Registry, policies: readonly Policy[], at: number): void {
  const note = (details: AuditDetails) => {
    registry.audit({ at, ...details, keyId: null, by: 'configuration file' });
  };
  for (const policy of policies) {
    if (isRecorded(registry, policy)) continue;
    const known = registry.policy(policy.namespace);
    note(known === undefined ? policyCreation(policy) : policyUpdate(known, policy));
    registry.putPolicy(policy);
  }
  const inFile = new Set(policies.map(({ namespace }) => namespace));
  for (const known of registry.policies()) {
    if (inFile.has(known.namespace)) continue;
    note(policyDeletion(known));
    registry.removePolicy(known);
  }
}

function areRecorded(registry: Registry, policies: readonly Policy[]): boolean {
  if (registry.policies().length !== policies.length) return false;
  return policies.every((policy) => isRecorded(registry, policy));
}

function isRecorded(registry: Registry, policy: Policy): boolean {
  const stored = registry.policy(policy.namespace);
  if (stored === undefined) return false;
  const { row: _, ...known } = stored;
  return isDeepStrictEqual(known, policy);
}
