/**
 * Unknown fields of requests of v1, as the main thread has them: it counts the requests of its own
 * operations, reads the counts of the acceptors, and logs each field of a key once.
 */

import {
  ReportedFields,
  shownField,
  type UnknownField,
  type UnknownFieldListener,
} from '../api/common/unknown-fields.ts';
import {
  OPERATION_NAMES,
  OPERATIONS,
  type OperationName,
} from '../api/operations/main-operations.ts';
import { UNKNOWN_FIELD_STATS } from '../api/operations/unknown-field-stats.ts';
import type { Log } from '../core/log.ts';
import type { Control } from '../shared-memory/control.ts';
import { type AcceptorStats, totalOf } from '../shared-memory/stats.ts';

export class UnknownFields {
  readonly #acceptors: AcceptorStats[];
  readonly #log: Log;
  readonly #redactKeys: (text: string) => string;
  readonly #requests = new Map<OperationName, number>();
  readonly #reported = new ReportedFields();

  /** @param redactKeys replaces API keys in a text: a client may send one in the wrong place */
  constructor(control: Control, log: Log, redactKeys: (text: string) => string) {
    this.#acceptors = control.allAcceptorStats();
    this.#log = log;
    this.#redactKeys = redactKeys;
  }

  /** Counts a request of an operation of the main thread. */
  readonly onUnknownFields: UnknownFieldListener<OperationName> = (operation, keyId, names) => {
    this.#requests.set(operation, (this.#requests.get(operation) ?? 0) + 1);
    for (const name of names) this.log({ operation, keyId, field: shownField(name) });
  };

  /** Logs a field, unless it was logged for this key before. */
  log({ operation, keyId, field }: UnknownField): void {
    if (!this.#reported.add(keyId, field)) return;
    const shown = this.#redactKeys(field);
    this.#log.warn({ operation, keyId, field: shown }, 'a request has an unknown field; ignored');
  }

  /** Requests with unknown fields, by the operations that ignore them. */
  requests(): (readonly [operation: string, requests: number])[] {
    const ownOperations = OPERATION_NAMES.filter((name) => OPERATIONS[name].version === 'v1');
    const onCounters = Object.entries(UNKNOWN_FIELD_STATS).map(([name, stat]) => {
      return [name, totalOf(this.#acceptors, stat)] as const;
    });
    return [
      ...onCounters,
      ...ownOperations.map((name) => [name, this.#requests.get(name) ?? 0] as const),
    ];
  }
}
