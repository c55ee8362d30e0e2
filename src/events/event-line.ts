/** Writes events as lines of JSON, mostly by code that writes responses too and so is cached. */

import { EVENT_LINE_BYTES_MAX } from '../core/constants.ts';
import type { Identity } from '../core/hash.ts';
import { encodeFragment, JsonWriter } from '../core/json-writer.ts';
import type {
  DecidedLease,
  DecidedWindow,
  DecisionEvent,
  IdentifierForm,
} from './decision-event.ts';

const TIME = encodeFragment('{"time":');
const NAMESPACE = encodeFragment(',"namespace":');
const IDENTIFIER = encodeFragment(',"identifier":');
const IDENTIFIER_HASH = encodeFragment(',"identifierHash":"');
const END_OF_TEXT = encodeFragment('"');
const ALLOWED = encodeFragment(',"decision":"allowed","cost":');
const DENIED = encodeFragment(',"decision":"denied","cost":');
const LIMIT = encodeFragment(',"limit":');
const DURATION = encodeFragment(',"duration":');
const REMAINING = encodeFragment(',"remaining":');
const RESET = encodeFragment(',"reset":');
const LEASE_LIMIT = encodeFragment(',"kind":"lease","limit":');
const IN_USE = encodeFragment(',"inUse":');
const OVERRIDE = encodeFragment(',"override":');
const POLICY = encodeFragment(',"policy":');
const SHADOW = encodeFragment(',"shadow":true');
const TRACEPARENT = encodeFragment(',"traceparent":');
const META = encodeFragment(',"meta":');
const RESOURCES = encodeFragment(',"resources":');
const END = encodeFragment('}\n');

export class EventLineWriter {
  readonly #form: IdentifierForm;
  readonly #writer = new JsonWriter(EVENT_LINE_BYTES_MAX);

  constructor(form: IdentifierForm) {
    this.#form = form;
  }

  /** @returns the line with its end, which the next line overwrites */
  write(timeMs: number, event: DecisionEvent): Uint8Array {
    const writer = this.#writer;
    writer.seek(0);
    writer.writeFragment(TIME);
    writer.writeInteger(timeMs);
    writer.writeFragment(NAMESPACE);
    writer.writeUncachedJsonText(event.namespace.name);
    this.#writeIdentifier(event);
    writer.writeFragment(event.isAllowed ? ALLOWED : DENIED);
    writer.writeInteger(event.cost);
    if (event.window !== undefined) this.#writeWindow(event.window);
    if (event.lease !== undefined) this.#writeLease(event.lease);
    this.#writeOrigin(event);
    this.#writeRequest(event);
    writer.writeFragment(END);
    return writer.finish();
  }

  #writeIdentifier({ identifier, identity }: DecisionEvent): void {
    const writer = this.#writer;
    if (this.#form === 'text' && identifier !== undefined) {
      writer.writeFragment(IDENTIFIER);
      writer.writeUncachedJsonText(identifier);
    } else if (this.#form === 'hash' && identity !== undefined) {
      writer.writeFragment(IDENTIFIER_HASH);
      writer.writeAscii(hashText(identity));
      writer.writeFragment(END_OF_TEXT);
    }
  }

  #writeWindow({ limit, durationMs, remaining, reset }: DecidedWindow): void {
    const writer = this.#writer;
    writer.writeFragment(LIMIT);
    writer.writeInteger(limit);
    writer.writeFragment(DURATION);
    writer.writeInteger(durationMs);
    writer.writeFragment(REMAINING);
    writer.writeInteger(remaining);
    writer.writeFragment(RESET);
    writer.writeInteger(reset);
  }

  #writeLease({ limit, inUse }: DecidedLease): void {
    const writer = this.#writer;
    writer.writeFragment(LEASE_LIMIT);
    writer.writeInteger(limit);
    writer.writeFragment(IN_USE);
    writer.writeInteger(inUse);
  }

  #writeOrigin({ overrideId, policy, isShadow }: DecisionEvent): void {
    const writer = this.#writer;
    if (overrideId !== undefined) {
      writer.writeFragment(OVERRIDE);
      writer.writeUncachedJsonText(overrideId);
    }
    if (policy !== undefined) {
      writer.writeFragment(POLICY);
      writer.writeUncachedJsonText(policy);
    }
    if (isShadow) writer.writeFragment(SHADOW);
  }

  #writeRequest({ request: { traceparent, meta, resources } }: DecisionEvent): void {
    const writer = this.#writer;
    if (traceparent !== undefined) {
      writer.writeFragment(TRACEPARENT);
      writer.writeUncachedJsonText(traceparent);
    }
    if (meta !== undefined) {
      writer.writeFragment(META);
      writer.writeUtf8(meta);
    }
    if (resources !== undefined) {
      writer.writeFragment(RESOURCES);
      writer.writeUtf8(resources);
    }
  }
}

function hashText({ h0, h1, h2, h3 }: Identity): string {
  return [h0, h1, h2, h3].map((word) => (word >>> 0).toString(16).padStart(8, '0')).join('');
}
