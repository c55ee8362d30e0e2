/** Finds the method of a request by its headers, or why it is no call. */

import { formatValue } from '../../core/describe.ts';
import { isGrpc } from '../../policies/grpc.ts';
import type { StreamMethod, UnaryMethod } from './call.ts';
import type { HeaderBlock } from './hpack.ts';
import { GRPC_STATUS, GrpcError } from './status.ts';
import type { Method } from './stream.ts';

export interface Methods {
  readonly unary: ReadonlyMap<string, UnaryMethod>;
  readonly serverStreaming: ReadonlyMap<string, StreamMethod>;
}

export type Route =
  | { readonly method: Method; readonly isUnary: boolean }
  | { readonly method: undefined; readonly httpStatus: number; readonly error: GrpcError };

export function routeOf({ method, path, contentType }: HeaderBlock, methods: Methods): Route {
  if (method !== 'POST') {
    const message = `the HTTP method must be POST; got ${formatValue(method)}`;
    return {
      method: undefined,
      httpStatus: 405,
      error: new GrpcError(GRPC_STATUS.INTERNAL, message),
    };
  }
  if (!isGrpc(contentType)) {
    const message = `content-type must be application/grpc; got ${formatValue(contentType)}`;
    return {
      method: undefined,
      httpStatus: 415,
      error: new GrpcError(GRPC_STATUS.INTERNAL, message),
    };
  }
  const unary = methods.unary.get(path);
  if (unary !== undefined) return { method: unary, isUnary: true };
  const streaming = methods.serverStreaming.get(path);
  if (streaming !== undefined) return { method: streaming, isUnary: false };
  const message = `unknown method ${formatValue(path)}`;
  return {
    method: undefined,
    httpStatus: 200,
    error: new GrpcError(GRPC_STATUS.UNIMPLEMENTED, message),
  };
}
