/**
 * Executes the operations that acceptors forward, on the main thread, and answers their questions.
 * Reads are answered from the registry at once; writes wait for a group commit of the writer. A
 * deletion that is too large for one transaction waits for several.
 *
 * The acceptor has verified the key. It is looked up again when the operation executes, since it
 * may have been revoked or have expired while a write waited. A user of the dashboard has the
 * permissions of a role instead.
 */

import { requireUnexpired } from '../auth/keyring.ts';
import { Permissions } from '../auth/permissions.ts';
import { permissionsOfRole, type UserRoles, userNameOf } from '../auth/users.ts';
import { IMPORT_VALUES_MAX } from '../core/constants.ts';
import { ApiError } from '../core/errors.ts';
import type { AuditDetails } from '../registry/audit-entries.ts';
import type { Writer } from '../registry/writer.ts';
import { parseBody, parseQuery } from './common/input.ts';
import { type OperationContext, UnfinishedDeletion } from './common/operation-context.ts';
import type { UnknownFieldListener } from './common/unknown-fields.ts';
import { EXECUTED, OPERATIONS, type OperationName } from './operations/main-operations.ts';
import type { OperationRequest, OperationResult } from './operations/messages.ts';

/** What handlers get, except what depends on the key of a request. */
export type ExecutorContext = Omit<OperationContext, 'permissions' | 'validate' | 'audit'>;

export class OperationExecutor {
  readonly #writer: Writer;
  readonly #context: ExecutorContext;
  readonly #users: UserRoles | undefined;
  readonly #onUnknownFields: UnknownFieldListener<OperationName>;

  /** @param users undefined where no proxy signs in users of the dashboard */
  constructor(
    writer: Writer,
    context: ExecutorContext,
    users: UserRoles | undefined,
    onUnknownFields: UnknownFieldListener<OperationName>,
  ) {
    this.#writer = writer;
    this.#context = context;
    this.#users = users;
    this.#onUnknownFields = onUnknownFields;
  }

  /** Never rejects: a failure is a result with its code, or without one when it is internal. */
  async execute({ operation, keyId, input }: OperationRequest): Promise<OperationResult> {
    try {
      const { isWrite, execute } = EXECUTED[operation];
      // Items of an import may have the same ones.
      const unknownFields = new Set<string>();
      let unfinished: UnfinishedDeletion | undefined;
      // Parsed when it executes: a waiting write takes only the memory of its bytes.
      const work = () => {
        const context = this.#contextFor(keyId, unknownFields);
        return execute(context, parseInput(operation, input), unfinished);
      };
      const run = async () => (isWrite ? this.#writer.submit(input.length, work) : work());
      let body = await run();
      while (body instanceof UnfinishedDeletion) {
        const part = body;
        unfinished = part;
        body = await run().catch((error) => {
          throw incomplete(error, part);
        });
      }
      if (unknownFields.size > 0) {
        // The question of an acceptor has no fields of a client.
        this.#onUnknownFields(operation as OperationName, keyId, [...unknownFields]);
      }
      return { body: JSON.stringify(body) };
    } catch (error) {
      const { message, stack } = error instanceof Error ? error : new Error(String(error));
      const { code, faultLocation } = error instanceof ApiError ? error : {};
      return { code, message, faultLocation, stack };
    }
  }

  #contextFor(keyId: string, unknownFields: Set<string>): OperationContext {
    const { registry, nowMs } = this.#context;
    const user = userNameOf(keyId);
    const permissions =
      user === undefined ? this.#permissionsOfKey(keyId) : this.#permissionsOfUser(user);
    const author =
      user === undefined
        ? { keyId, keyName: registry.key(keyId)!.name }
        : { keyId: null, by: 'user' as const, user };
    const audit = (details: AuditDetails) => registry.audit({ at: nowMs(), ...details, ...author });
    const validate: OperationContext['validate'] = (validator, input) => {
      const valid = validator.validate(input);
      for (const name of validator.unknownFields(valid)) unknownFields.add(name);
      return valid;
    };
    return { ...this.#context, permissions, validate, audit };
  }

  #permissionsOfKey(keyId: string): Permissions {
    const { registry, nowMs } = this.#context;
    const key = registry.key(keyId);
    if (key === undefined) throw new ApiError('UNAUTHORIZED', 'the API key was revoked');
    requireUnexpired(key.expiresMs, nowMs());
    return new Permissions(key.permissions);
  }

  #permissionsOfUser(name: string): Permissions {
    if (this.#users === undefined) {
      throw new ApiError('UNAUTHORIZED', 'no proxy signs in users of the dashboard');
    }
    return permissionsOfRole(this.#users.roleOf(name));
  }
}

/** An error after a part of a write is durable. */
function incomplete(error: unknown, { overrides }: UnfinishedDeletion): unknown {
  if (!(error instanceof ApiError)) return error;
  const cause = error.message.replace(/; nothing was changed$/, '');
  const state = `${overrides} overrides of the namespace are deleted, and the namespace is not`;
  return new ApiError(error.code, `${state}; repeat the request: ${cause}`);
}

function parseInput(
  operation: OperationRequest['operation'],
  input: OperationRequest['input'],
): unknown {
  if (typeof input !== 'string') return parseBody(input, IMPORT_VALUES_MAX);
  // A question has no query.
  return parseQuery(input, OPERATIONS[operation as OperationName].validator.schema);
}
