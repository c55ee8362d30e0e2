/**
 * The dynamic metadata of an answer, as envoyproxy/ratelimit builds it: the request, and the
 * `metadata` of the rules that allowed it. Its own merges the latter in place, so that a rule keeps
 * what another one had; here each answer has a copy.
 */

import type { JsonObject, JsonValue } from '../core/json.ts';
import { type Call, CODE } from './call.ts';
import type { RateLimitRequest, RequestDescriptor } from './wire/request.ts';
import { unitName } from './wire/units.ts';

export function requestMetadata(request: RateLimitRequest): JsonObject {
  const { domain, hitsAddend, descriptors, descriptorCount } = request;
  return {
    domain,
    descriptors: descriptors.slice(0, descriptorCount).map(descriptorMetadata),
    ...(hitsAddend !== 0 && { hitsAddend }),
  };
}

function descriptorMetadata(descriptor: RequestDescriptor): JsonObject {
  const { entryCount, keys, values, hitsAddend, limitUnit, limitRequests } = descriptor;
  const entries = Array.from({ length: entryCount }, (_, i) => `${keys[i]}=${values[i]}`);
  const limit = `requests_per_unit:${limitRequests} unit:${unitName(limitUnit) ?? limitUnit}`;
  return {
    entries,
    ...(limitUnit >= 0 && { limit }),
    ...(hitsAddend >= 0 && { hitsAddend }),
  };
}

/** The field `metadata`, if a rule that allowed the request has some. */
export function passedMetadata(call: Call): JsonObject {
  const merged: JsonObject = Object.create(null);
  for (let number = 0; number < call.count; number++) {
    const { kind, code, rule } = call.at(number);
    if (kind === 'unlimited' || code === CODE.OVER_LIMIT || rule?.metadata === undefined) continue;
    merge(merged, rule.metadata);
  }
  return Object.keys(merged).length === 0 ? {} : { metadata: merged };
}

/** The first value of a key stays; objects are merged. */
function merge(into: JsonObject, from: JsonObject): void {
  for (const [key, value] of Object.entries(from)) {
    const known = Object.hasOwn(into, key) ? into[key] : undefined;
    if (known === undefined) into[key] = structuredClone(value);
    else if (isObject(known) && isObject(value)) merge(known, value);
  }
}

function isObject(value: JsonValue): value is JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
