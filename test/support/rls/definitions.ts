/** The services of the proto files in this folder, as an independent implementation reads them. */

import { join } from 'node:path';
import { loadPackageDefinition, type ServiceClientConstructor } from '@grpc/grpc-js';
import { loadSync, type MethodDefinition, type ServiceDefinition } from '@grpc/proto-loader';

const definition = loadSync(
  ['rls.proto', 'health.proto'].map((name) => join(import.meta.dirname, name)),
  { longs: String, enums: Number, keepCase: true, defaults: true, oneofs: true },
);

export const RATE_LIMIT_SERVICE = 'envoy.service.ratelimit.v3.RateLimitService';
export const HEALTH_SERVICE = 'grpc.health.v1.Health';

const { ShouldRateLimit } = definition[RATE_LIMIT_SERVICE] as ServiceDefinition;
export const SHOULD_RATE_LIMIT = ShouldRateLimit as MethodDefinition<object, object>;

/** A client class of grpc-js for a service of the proto files. */
export function clientClass(service: string): ServiceClientConstructor {
  const { [service]: definitionOfService } = definition;
  const loaded = loadPackageDefinition({ [service]: definitionOfService });
  let found: unknown = loaded;
  for (const name of service.split('.')) found = (found as Record<string, unknown>)[name];
  return found as ServiceClientConstructor;
}
