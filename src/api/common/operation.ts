/**
 * The declaration of an operation: its route, the permission that it requires, the schema of its
 * request, and how it executes. Each operation has a file with its declaration. The main thread
 * executes most operations; acceptors execute those on counters themselves.
 *
 * Beside its operation, a file has the function `response`, which returns the schema of the 200. It
 * documents the API, tests compare responses with it, and handlers use its type. No thread of a
 * server calls it, so that the bundle does not contain it.
 */

import type { Static, TObject, TProperties, TSchema } from 'typebox';
import Type from 'typebox';
import type { GlobalPermission, NamespaceAction } from '../../auth/permissions.ts';
import { BODY_MAX_BYTES } from '../../core/constants.ts';
import type { Eventual } from '../../core/eventual.ts';
import {
  createStrictValidator,
  createValidator,
  JSON_OBJECT,
  QUERY,
  type Validator,
} from '../../core/schema.ts';
import type {
  OperationContext,
  OperationHandler,
  UnfinishedDeletion,
} from './operation-context.ts';
import type { Version } from './versions.ts';

/** What the route of an operation needs. The path is `/<version>/<name>`. */
export interface OperationRoute<Name extends string = string> {
  readonly name: Name;
  readonly version: Version;
  readonly method: 'GET' | 'POST';
  /** The largest body of a POST. */
  readonly maxBytes: number;
}

/** The route of an operation that the main thread executes. */
export interface MainRoute<Name extends string = string> extends OperationRoute<Name> {
  /** About the bytes of a response, which count against the bound of pending operations. */
  readonly responseBytesEstimate: number;
}

/** The permission that a key needs for an operation. */
export type Requirement =
  | {
      readonly action: NamespaceAction;
      readonly in:
        | 'the namespace'
        | 'each listed namespace'
        | 'all namespaces'
        /** Without the permission the hold is unknown: there is no 403. */
        | 'the namespace of the hold';
      /** A second action, which is required in the same namespace. */
      readonly and?: NamespaceAction;
    }
  | { readonly permission: GlobalPermission };

/** An operation that an acceptor executes. */
export interface CounterOperation<
  Name extends string = string,
  Request extends TProperties = TProperties,
> extends OperationRoute<Name> {
  readonly requires: Requirement;
  /** Of the body of a POST, or the query of a GET. */
  readonly validator: Validator<TObject<Request>>;
}

/** An operation that the main thread executes. */
export interface MainOperation<
  Name extends string = string,
  Request extends TProperties = TProperties,
  Response extends object = object,
> extends MainRoute<Name>,
    CounterOperation<Name, Request> {
  /** Whether it may change something, and so waits for the writer. */
  readonly isWrite: boolean;
  readonly execute: OperationHandler<Response>;
}

/** The object that an operation returns; the server adds `meta` to that of v2. */
export type Result<Schema extends () => TSchema> = Omit<Static<ReturnType<Schema>>, 'meta'>;

/** Estimates of the largest responses, in bytes. */
export const RESPONSE_BYTES = {
  export: 1_048_576,
  figures: 262_144,
  read: 65_536,
  change: 16_384,
} as const;

interface Declaration<Name extends string, Request extends TProperties> {
  name: Name;
  version: Version;
  requires: Requirement;
  /** The fields of the request. */
  request: Request;
  maxBytes?: number;
}

interface MainDeclaration<Name extends string, Request extends TProperties, Response extends object>
  extends Declaration<Name, Request> {
  responseBytesEstimate?: number;
  /** @param request a valid one, whose unknown fields are noted */
  handle: (
    context: OperationContext,
    request: Static<TObject<Request>>,
    unfinished?: UnfinishedDeletion,
  ) => Eventual<Response> | UnfinishedDeletion;
}

/** Declares an operation that changes nothing. In v2 it is a POST too. */
export function readOperation<
  const Name extends string,
  Request extends TProperties,
  Response extends object,
>(declaration: MainDeclaration<Name, Request, Response>): MainOperation<Name, Request, Response> {
  const method = declaration.version === 'v1' ? 'GET' : 'POST';
  return mainOperation(declaration, method, false, RESPONSE_BYTES.read);
}

/** Declares an operation that may change something. */
export function writeOperation<
  const Name extends string,
  Request extends TProperties,
  Response extends object,
>(declaration: MainDeclaration<Name, Request, Response>): MainOperation<Name, Request, Response> {
  return mainOperation(declaration, 'POST', true, RESPONSE_BYTES.change);
}

function mainOperation<Name extends string, Request extends TProperties, Response extends object>(
  { handle, responseBytesEstimate, ...declaration }: MainDeclaration<Name, Request, Response>,
  method: OperationRoute['method'],
  isWrite: boolean,
  estimate: number,
): MainOperation<Name, Request, Response> {
  const declared = declare(declaration, method);
  return {
    ...declared,
    responseBytesEstimate: responseBytesEstimate ?? estimate,
    isWrite,
    execute: (context, input, unfinished) => {
      return handle(context, context.validate(declared.validator, input), unfinished);
    },
  };
}

/** Declares an operation on counters. @param subject what an error calls the validated object */
export function counterOperation<const Name extends string, Request extends TProperties>(
  declaration: Declaration<Name, Request>,
  subject?: string,
): CounterOperation<Name, Request> {
  return declare(declaration, 'POST', subject);
}

/** v1 ignores unknown fields, since clients may send fields of other servers. v2 rejects them. */
function declare<Name extends string, Request extends TProperties>(
  { request, ...declaration }: Declaration<Name, Request>,
  method: OperationRoute['method'],
  subject?: string,
): CounterOperation<Name, Request> {
  const isGet = method === 'GET';
  const create = declaration.version === 'v1' ? createValidator : createStrictValidator;
  const validator = create(Type.Object(request, isGet ? QUERY : JSON_OBJECT), subject);
  return { method, maxBytes: isGet ? 0 : BODY_MAX_BYTES, ...declaration, validator };
}

/** The path of an operation. */
export function pathOf({ version, name }: OperationRoute): string {
  return `/${version}/${name}`;
}

type ByName<Operation extends { name: string }> = Readonly<{
  [Name in Operation['name']]: Extract<Operation, { name: Name }>;
}>;

export function byName<Operation extends { name: string }>(
  operations: readonly Operation[],
): ByName<Operation> {
  return Object.fromEntries(operations.map((one) => [one.name, one])) as ByName<Operation>;
}
