/** What an event repeats of a request: fields of its body, and its header `traceparent`. */

import type { RequestDetails } from './decision-event.ts';

const META = Buffer.from('"meta"');
const RESOURCES = Buffer.from('"resources"');
const NO_DETAILS: RequestDetails = {};

/** A request whose decisions may become events: of a sample, one in many requests is one. */
export interface SampledRequest {
  /** The header, if the request has a valid one. */
  traceparent: string | undefined;
}

/** @param bytes a valid body */
export function readDetails(
  bytes: ArrayBuffer | Uint8Array,
  { traceparent }: SampledRequest,
): RequestDetails {
  const body = ArrayBuffer.isView(bytes)
    ? Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength)
    : Buffer.from(bytes);
  const details = traceparent === undefined ? NO_DETAILS : { traceparent };
  // Few bodies have these fields, and only those are parsed a second time.
  if (!body.includes(META) && !body.includes(RESOURCES)) return details;
  const { meta, resources } = JSON.parse(body.toString()) as Record<string, unknown>;
  return { ...details, meta: jsonOf(meta), resources: jsonOf(resources) };
}

/** @returns undefined also for a value nested too deeply for JSON.stringify: the check is valid */
function jsonOf(value: unknown): string | undefined {
  try {
    return JSON.stringify(value);
  } catch (error) {
    if (error instanceof RangeError) return undefined;
    throw error;
  }
}
