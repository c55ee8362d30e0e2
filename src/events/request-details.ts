/** The parts of a request that an event repeats: fields of its body, its header `traceparent`. */

import { BODY_MAX_BYTES } from '../core/constants.ts';
import type { RequestDetails } from './decision-event.ts';

const META = Buffer.from('"meta"');
const RESOURCES = Buffer.from('"resources"');

/** @param bytes a valid body @returns the details with those of the body */
export function withBodyDetails(
  details: RequestDetails,
  bytes: ArrayBuffer | Uint8Array,
): RequestDetails {
  const body = ArrayBuffer.isView(bytes)
    ? Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength)
    : Buffer.from(bytes);
  // Few bodies have these fields, and only those are parsed a second time.
  if (!body.includes(META) && !body.includes(RESOURCES)) return details;
  const { meta, resources } = JSON.parse(body.toString()) as Record<string, unknown>;
  return { ...details, meta: jsonOf(meta), resources: jsonOf(resources) };
}

/**
 * @returns undefined for a value that an event leaves out, though the check is valid:
 * `JSON.stringify` fails where it is nested too deeply, and writes `1e20` as 21 digits
 */
function jsonOf(value: unknown): string | undefined {
  try {
    const json = JSON.stringify(value);
    return json === undefined || Buffer.byteLength(json) > BODY_MAX_BYTES ? undefined : json;
  } catch (error) {
    if (error instanceof RangeError) return undefined;
    throw error;
  }
}

/** The header of W3C Trace Context: version, trace id, parent id and flags, and fields to come. */
const TRACEPARENT = /^[\da-f]{2}-[\da-f]{32}-[\da-f]{16}-[\da-f]{2}(-[\x21-\x7e]{0,200})?$/;

/**
 * The header of a request that an event repeats.
 * @param traceparent the header, or '' where there is none. One that is not valid must be ignored,
 * as the standard says
 */
export function detailsOfHead(traceparent: string): RequestDetails {
  const isValid = traceparent !== '' && TRACEPARENT.test(traceparent);
  return { traceparent: isValid ? traceparent : undefined };
}
