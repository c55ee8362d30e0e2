/** The status codes of gRPC, and the error that a call ends with. */

export const GRPC_STATUS = {
  OK: 0,
  UNKNOWN: 2,
  INVALID_ARGUMENT: 3,
  NOT_FOUND: 5,
  PERMISSION_DENIED: 7,
  RESOURCE_EXHAUSTED: 8,
  UNIMPLEMENTED: 12,
  INTERNAL: 13,
  UNAVAILABLE: 14,
} as const;

type GrpcStatus = (typeof GRPC_STATUS)[keyof typeof GRPC_STATUS];

/** Becomes `grpc-status` and `grpc-message` of its call. */
export class GrpcError extends Error {
  readonly status: GrpcStatus;

  constructor(status: GrpcStatus, message: string) {
    super(message);
    this.status = status;
  }
}
