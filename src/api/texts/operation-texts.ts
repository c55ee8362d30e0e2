/**
 * The documentation of an operation: the type of what its file `*.texts.ts` exports. No thread of a
 * server loads these files.
 */

import type { TSchema } from 'typebox';
import type { NamespaceAction } from '../../auth/permissions.ts';
import type { CounterOperation, OperationRoute, Requirement } from '../common/operation.ts';

/** The groups of operations, in the order of the documentation. */
export const TAGS = {
  Checks:
    'A check decides whether an identifier may use tokens now. The response to a denied check is ' +
    'a 200 too: read `success` or `passed`.',
  'Reservations and leases':
    'A reservation is a check whose cost is corrected when it is known. A lease limits how much ' +
    'runs at once. Both end by themselves. weir adds these operations to v1.',
  'Refund, reset, inspect, explain':
    'These operations correct, show and explain counters, and end holds. weir adds them to v1.',
  Overrides:
    'An override gives an identifier, or all identifiers that match a pattern, another limit and ' +
    'duration than those of the check.',
  Blocks:
    'A block denies all checks of one identifier in a namespace, for a time. weir adds these ' +
    'operations to v1.',
  'Namespaces and policies':
    'The namespaces and policies of a server. weir adds these operations to v1.',
  Keys: 'API keys. weir adds these operations to v1.',
  'Audit log':
    'The changes to keys, namespaces, overrides, blocks and policies, and the holds that ' +
    'operators have ended. weir adds it to v1.',
  Analytics:
    'Figures of namespaces by minute and by hour, and their busiest identifiers. weir adds these ' +
    'operations to v1.',
  'Gateway checks':
    'A gateway sends a check for each request of its clients. A policy in the configuration file ' +
    'says how a client is identified, and sets its limits.',
  Documentation: 'The server has its own documentation, which needs no key.',
} as const;
export type Tag = keyof typeof TAGS;

interface Example {
  summary: string;
  /** The body of a POST, or the query of a GET. */
  request: unknown;
  status: 200 | 400 | 404 | 409;
  response: unknown;
}

interface Texts {
  tag: Tag;
  summary: string;
  /** Paragraphs. */
  description: readonly string[];
  /** The message of a 403, unless it names all permissions. */
  forbidden?: string;
  /** Beside those of every operation: when it answers 404 or 409. */
  notFound?: string;
  conflict?: string;
  /**
   * A test sends each request to a running server, and compares the response with the one here
   * except for ids, times and addresses.
   */
  examples: Readonly<Record<string, Example>>;
}

/** An operation with its texts, as `documented` puts it together. */
export interface DocumentedOperation<
  Name extends string = string,
  Response extends TSchema = TSchema,
> extends OperationRoute<Name>,
    Texts {
  requires: Requirement;
  /** With the rules that functions check after the schema. */
  request: TSchema;
  response: Response;
}

/** @param rules adds to the schema of the request what functions check: see `request-rules.ts` */
export function documented<Name extends string, Response extends TSchema>(
  { name, version, method, maxBytes, requires, validator }: CounterOperation<Name>,
  response: () => Response,
  { rules = (schema) => schema, ...texts }: Texts & { rules?: (schema: TSchema) => TSchema },
): DocumentedOperation<Name, Response> {
  const route = { name, version, method, maxBytes };
  const request = rules(validator.schema);
  return { ...route, requires, request, response: response(), ...texts };
}

/** One of these permissions is sufficient; of `also`, one is required too. */
export function permissionsOf(requires: Requirement): {
  permissions: readonly string[];
  also: readonly string[] | undefined;
} {
  if ('permission' in requires) return { permissions: [requires.permission], also: undefined };
  const { action, in: where, and } = requires;
  const permissions = inNamespace(action).slice(0, where === 'all namespaces' ? 1 : 2);
  return { permissions, also: and && inNamespace(and) };
}

export function inNamespace(action: NamespaceAction): readonly string[] {
  return [`ratelimit.*.${action}`, `ratelimit.<namespaceId>.${action}`];
}
