/**
 * Reads the body of a check, or of a request on a hold, from its bytes, without a string or a value
 * per body. It supports the JSON that nearly all clients send: an object of known fields, with
 * strings of plain ASCII, integers, true and false, and spaces between them. For any other body,
 * invalid ones included, it returns UNSUPPORTED, and `JSON.parse` reads the body, so errors have
 * one source. A test compares both on millions of bodies.
 *
 * A thread has one scanner. Its results are valid until the next body is loaded.
 */

import { Bytes } from '../../core/bytes.ts';
import { MULTI_LIMIT_MAX_BYTES } from '../../core/constants.ts';

/** The bits of fields in `foundFields`. */
export const FIELD = {
  identifier: 1,
  limit: 2,
  duration: 4,
  namespace: 8,
  cost: 16,
  async: 32,
  ttl: 64,
  reservationId: 128,
  leaseId: 256,
} as const;

const NO_FIELD = 0;

/** By the bit of a field: the length of its name with closing quote and colon. */
const FIELD_NAME_LENGTHS = new Uint8Array(1 + Math.max(...Object.values(FIELD)));
for (const [name, bit] of Object.entries(FIELD))
  FIELD_NAME_LENGTHS[bit] = name.length + '":'.length;

/** The result for a body that the scanner does not read. */
export const UNSUPPORTED = -1;

const SPACE = 0x20;
const QUOTE = 0x22;
const COMMA = 0x2c;
const ZERO = 0x30;
const NINE = 0x39;
const OPEN_BRACKET = 0x5b;
const CLOSE_BRACKET = 0x5d;
const OPEN_BRACE = 0x7b;
const CLOSE_BRACE = 0x7d;

/** A number with more digits may not be exact as a double. */
const DIGITS_MAX = 15;

/** 1 for a byte that needs no decoding in a string: ASCII but controls, quote and backslash. */
const IS_PLAIN_BYTE = Uint8Array.from({ length: 256 }, (_, byte) => {
  return byte >= SPACE && byte < 0x80 && byte !== QUOTE && byte !== 0x5c ? 1 : 0;
});

/** Four characters as a word of memory. */
const word = (text: string) => Buffer.from(text, 'latin1').readInt32LE();

/** The names of fields with closing quote and colon, as words of memory that may overlap. */
const [IDEN, TIFI, ER] = [word('iden'), word('tifi'), word('er":')];
const [NAME, SPAC, CE] = [word('name'), word('spac'), word('ce":')];
const [LIMI, IT] = [word('limi'), word('it":')];
const [DURA, TION, ON] = [word('dura'), word('tion'), word('on":')];
const [COST, ST] = [word('cost'), word('st":')];
const [ASYN, NC] = [word('asyn'), word('nc":')];
const [TTL, TL] = [word('ttl"'), word('tl":')];
const [RESE, RVAT, IONI, ID] = [word('rese'), word('rvat'), word('ionI'), word('Id":')];
const [LEAS, SEID] = [word('leas'), word('seId')];

const [TRUE, FALS, E] = [word('true'), word('fals'), 'e'.charCodeAt(0)];

export class BodyScanner {
  /** The body and a terminating zero byte, which ends every scan. */
  readonly memory = new Bytes(MULTI_LIMIT_MAX_BYTES + 1);
  /** The fields of the last object, as bits of FIELD. The values of other fields are stale. */
  foundFields = 0;
  identifierFrom = 0;
  identifierTo = 0;
  limit = 0;
  duration = 0;
  cost = 0;
  ttl = 0;
  isAsync = false;
  /** The id of a reservation or a lease. */
  holdIdFrom = 0;
  holdIdTo = 0;
  #namespaceFrom = 0;
  #namespaceTo = 0;
  #namespaceText = '';

  /** Loads and scans a body. @returns whether it is one supported object and nothing else */
  scanBody(body: ArrayBuffer | Uint8Array): boolean {
    const length = this.load(body);
    return this.scanObject(0) === length;
  }

  /** Loads a body of at most MULTI_LIMIT_MAX_BYTES. @returns its length */
  load(body: ArrayBuffer | Uint8Array): number {
    const { array } = this.memory;
    array.set(body instanceof ArrayBuffer ? new Uint8Array(body) : body);
    array[body.byteLength] = 0;
    return body.byteLength;
  }

  /** @returns the offset of the first item of an array, or UNSUPPORTED */
  firstItem(): number {
    return this.memory.array[0] === OPEN_BRACKET ? 1 : UNSUPPORTED;
  }

  /** @param at the offset after an item @returns the offset of the next, or UNSUPPORTED */
  nextItem(at: number): number {
    const { array } = this.memory;
    return array[at] === COMMA ? skipSpaces(array, at + 1) : UNSUPPORTED;
  }

  /** Whether the array and the body end after an item. @param length of the body */
  isEndOfList(at: number, length: number): boolean {
    return this.memory.array[at] === CLOSE_BRACKET && at + 1 === length;
  }

  /** The namespace of the last object. Mostly it is the previous one, whose text is kept. */
  readNamespace(): string {
    const { array } = this.memory;
    const last = this.#namespaceText;
    const from = this.#namespaceFrom;
    const length = this.#namespaceTo - from;
    let isSame = last.length === length;
    for (let i = 0; isSame && i < length; i++) isSame = last.charCodeAt(i) === array[from + i];
    if (!isSame) this.#namespaceText = this.memory.text(from, this.#namespaceTo);
    return this.#namespaceText;
  }

  get namespaceLength(): number {
    return this.#namespaceTo - this.#namespaceFrom;
  }

  get identifierLength(): number {
    return this.identifierTo - this.identifierFrom;
  }

  /**
   * Scans an object with at least one field. The last value of a repeated field counts, as in
   * `JSON.parse`. @returns the offset after the object, or UNSUPPORTED
   */
  scanObject(at: number): number {
    const { array, view } = this.memory;
    if (array[at] !== OPEN_BRACE) return UNSUPPORTED;
    let found = 0;
    for (let next = at + 1; ; next++) {
      const quote = skipSpaces(array, next);
      if (array[quote] !== QUOTE) return UNSUPPORTED;
      const field = fieldAt(view, quote + 1);
      found |= field;
      next = this.#scanValue(field, skipSpaces(array, quote + 1 + FIELD_NAME_LENGTHS[field]));
      if (next === UNSUPPORTED) return UNSUPPORTED;
      next = skipSpaces(array, next);
      if (array[next] === COMMA) continue;
      if (array[next] !== CLOSE_BRACE) return UNSUPPORTED;
      this.foundFields = found;
      return next + 1;
    }
  }

  /** @returns the offset after the value of a field, or UNSUPPORTED */
  #scanValue(field: number, at: number): number {
    const { array, view } = this.memory;
    if (field === FIELD.identifier) {
      this.identifierFrom = at + 1;
      this.identifierTo = endOfText(array, at);
      return this.identifierTo === UNSUPPORTED ? UNSUPPORTED : this.identifierTo + 1;
    }
    if (field === FIELD.namespace) {
      this.#namespaceFrom = at + 1;
      this.#namespaceTo = endOfText(array, at);
      return this.#namespaceTo === UNSUPPORTED ? UNSUPPORTED : this.#namespaceTo + 1;
    }
    if (field === FIELD.async) {
      this.isAsync = view.getInt32(at, true) === TRUE;
      if (this.isAsync) return at + 4;
      return view.getInt32(at, true) === FALS && array[at + 4] === E ? at + 5 : UNSUPPORTED;
    }
    if (field >= FIELD.reservationId) {
      this.holdIdFrom = at + 1;
      this.holdIdTo = endOfText(array, at);
      return this.holdIdTo === UNSUPPORTED ? UNSUPPORTED : this.holdIdTo + 1;
    }
    if (field === NO_FIELD) return UNSUPPORTED;
    const end = endOfInteger(array, at);
    if (end === UNSUPPORTED) return UNSUPPORTED;
    const value = parseInteger(array, at, end);
    if (field === FIELD.limit) this.limit = value;
    else if (field === FIELD.duration) this.duration = value;
    else if (field === FIELD.cost) this.cost = value;
    else this.ttl = value;
    return end;
  }
}

/** The field whose name begins at an offset, after its quote; NO_FIELD for an unknown name. */
function fieldAt(view: DataView, at: number): number {
  switch (view.getInt32(at, true)) {
    case IDEN: {
      const isMatch = view.getInt32(at + 4, true) === TIFI && view.getInt32(at + 8, true) === ER;
      return isMatch ? FIELD.identifier : NO_FIELD;
    }
    case NAME: {
      const isMatch = view.getInt32(at + 4, true) === SPAC && view.getInt32(at + 7, true) === CE;
      return isMatch ? FIELD.namespace : NO_FIELD;
    }
    case DURA: {
      const isMatch = view.getInt32(at + 4, true) === TION && view.getInt32(at + 6, true) === ON;
      return isMatch ? FIELD.duration : NO_FIELD;
    }
    case LIMI:
      return view.getInt32(at + 3, true) === IT ? FIELD.limit : NO_FIELD;
    case COST:
      return view.getInt32(at + 2, true) === ST ? FIELD.cost : NO_FIELD;
    case ASYN:
      return view.getInt32(at + 3, true) === NC ? FIELD.async : NO_FIELD;
    case TTL:
      return view.getInt32(at + 1, true) === TL ? FIELD.ttl : NO_FIELD;
    case RESE: {
      const isMatch = view.getInt32(at + 4, true) === RVAT && view.getInt32(at + 8, true) === IONI;
      return isMatch && view.getInt32(at + 11, true) === ID ? FIELD.reservationId : NO_FIELD;
    }
    case LEAS: {
      const isMatch = view.getInt32(at + 3, true) === SEID && view.getInt32(at + 5, true) === ID;
      return isMatch ? FIELD.leaseId : NO_FIELD;
    }
    default:
      return NO_FIELD;
  }
}

function skipSpaces(array: Buffer, from: number): number {
  let at = from;
  while (array[at] === SPACE) at++;
  return at;
}

/** @returns the offset of the closing quote of a string, or UNSUPPORTED */
function endOfText(array: Buffer, from: number): number {
  if (array[from] !== QUOTE) return UNSUPPORTED;
  let at = from + 1;
  while (IS_PLAIN_BYTE[array[at]] === 1) at++;
  return array[at] === QUOTE ? at : UNSUPPORTED;
}

/** @returns the offset after the digits of a JSON integer, or UNSUPPORTED */
function endOfInteger(array: Buffer, from: number): number {
  let at = from;
  while (array[at] >= ZERO && array[at] <= NINE) at++;
  const digits = at - from;
  if (digits === 0 || digits > DIGITS_MAX || (array[from] === ZERO && digits > 1))
    return UNSUPPORTED;
  return at;
}

function parseInteger(array: Buffer, from: number, to: number): number {
  let value = 0;
  for (let at = from; at < to; at++) value = 10 * value + (array[at] - ZERO);
  return value;
}
