/**
 * How a gRPC client is told of a denial: by headers, without a body and with the HTTP status 200
 * ("Trailers-Only" of the gRPC protocol). It would take a 429 for a failure of the server.
 */

/** Of the requests and responses of gRPC, but not of gRPC-Web. */
export const GRPC_CONTENT_TYPE = 'application/grpc';
/** Matches the header Content-Type of gRPC, which Envoy compares with case; for PCRE too. */
export const GRPC_CONTENT_TYPE_PATTERN = '^application/grpc($|[+; ])';
/** RESOURCE_EXHAUSTED. */
export const GRPC_DENIED_STATUS = '8';
/** In ASCII without `%`, so it needs no escapes. */
export const GRPC_DENIED_MESSAGE = 'rate limit exceeded';
export const GRPC_HEADERS = ['grpc-status', 'grpc-message'] as const;

const PATTERN = new RegExp(GRPC_CONTENT_TYPE_PATTERN);

/** @param contentType '' for none */
export function isGrpc(contentType: string): boolean {
  return contentType !== '' && PATTERN.test(contentType);
}
