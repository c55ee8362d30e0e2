/**
 * Reads the bytes of a check's body as nearly all clients write it, without making a text or a
 * value of them: an object of known fields, texts of plain ASCII, whole numbers, true or false,
 * with spaces between them or none. Of anything else it says so, and `JSON.parse` has it: also of
 * all that is at fault, so that an error is the same whoever found it. What it does read is what
 * `JSON.parse` would; a test compares the two on millions of bodies.
 *
 * One for each thread. What it has read holds until the next body is put in.
 */

import { Bytes } from '../../core/bytes.ts';
import { MULTI_LIMIT_MAX_BYTES } from '../../core/constants.ts';

/** The fields that were there, as bits of `found`. */
export const FIELD = {
  identifier: 1,
  limit: 2,
  duration: 4,
  namespace: 8,
  cost: 16,
  async: 32,
} as const;

const NO_FIELD = 0;

/** By the bit of a field: its name with end quote and colon. */
const FIELD_NAME_LENGTHS = new Uint8Array(2 * FIELD.async);
for (const [name, bit] of Object.entries(FIELD))
  FIELD_NAME_LENGTHS[bit] = name.length + '":'.length;

/** What is no object of these fields. */
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

/** With more digits a number may be no exact one. */
const DIGITS_MAX = 15;

/** 1 for a byte that stands for itself in a text: ASCII without controls, quote and backslash. */
const IS_PLAIN_BYTE = Uint8Array.from({ length: 256 }, (_, byte) => {
  return byte >= SPACE && byte < 0x80 && byte !== QUOTE && byte !== 0x5c ? 1 : 0;
});

/** Four characters as a word of memory. */
const word = (text: string) => Buffer.from(text, 'latin1').readInt32LE();

/** The names of the fields, each with its end quote and colon, in words that may overlap. */
const [IDEN, TIFI, ER] = [word('iden'), word('tifi'), word('er":')];
const [NAME, SPAC, CE] = [word('name'), word('spac'), word('ce":')];
const [LIMI, IT] = [word('limi'), word('it":')];
const [DURA, TION, ON] = [word('dura'), word('tion'), word('on":')];
const [COST, ST] = [word('cost'), word('st":')];
const [ASYN, NC] = [word('asyn'), word('nc":')];

const [TRUE, FALS, E] = [word('true'), word('fals'), 'e'.charCodeAt(0)];

export class BodyScanner {
  /** The body, and behind it a byte that is part of none: nothing is read beyond that. */
  readonly memory = new Bytes(MULTI_LIMIT_MAX_BYTES + 1);
  /** What the last object had, as bits of FIELD; the others are as they were before it. */
  foundFields = 0;
  identifierFrom = 0;
  identifierTo = 0;
  limit = 0;
  duration = 0;
  cost = 0;
  isAsync = false;
  #namespaceFrom = 0;
  #namespaceTo = 0;
  #namespaceText = '';

  /** Puts a body in and reads it. @returns whether it is one object, and nothing else */
  scanBody(body: ArrayBuffer | Uint8Array): boolean {
    const length = this.load(body);
    return this.scanObject(0) === length;
  }

  /** Puts a body in, of at most MULTI_LIMIT_MAX_BYTES. @returns its length */
  load(body: ArrayBuffer | Uint8Array): number {
    const { array } = this.memory;
    array.set(body instanceof ArrayBuffer ? new Uint8Array(body) : body);
    array[body.byteLength] = 0;
    return body.byteLength;
  }

  /** @returns where the first item of a body is that is a list, or UNUSUAL */
  firstItem(): number {
    return this.memory.array[0] === OPEN_BRACKET ? 1 : UNSUPPORTED;
  }

  /** @param at behind an item @returns where the next one is, or UNUSUAL */
  nextItem(at: number): number {
    const { array } = this.memory;
    return array[at] === COMMA ? skipSpaces(array, at + 1) : UNSUPPORTED;
  }

  /** Whether the list ends behind an item, and the body with it. @param length what `put` said */
  isEndOfList(at: number, length: number): boolean {
    return this.memory.array[at] === CLOSE_BRACKET && at + 1 === length;
  }

  /** The last object's namespace: mostly that of the one before, whose text is there already. */
  readNamespace(): string {
    const { array } = this.memory;
    const known = this.#namespaceText;
    const from = this.#namespaceFrom;
    const length = this.#namespaceTo - from;
    let isKnown = known.length === length;
    for (let i = 0; isKnown && i < length; i++) isKnown = known.charCodeAt(i) === array[from + i];
    if (!isKnown) this.#namespaceText = this.memory.text(from, this.#namespaceTo);
    return this.#namespaceText;
  }

  get namespaceLength(): number {
    return this.#namespaceTo - this.#namespaceFrom;
  }

  get identifierLength(): number {
    return this.identifierTo - this.identifierFrom;
  }

  /**
   * Reads an object of at least one field; of one that comes again the last value holds, as
   * `JSON.parse` has it. @returns behind its end, or UNUSUAL
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

  /** @returns behind the value of a field, or UNUSUAL */
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
    if (field === NO_FIELD) return UNSUPPORTED;
    const end = endOfInteger(array, at);
    if (end === UNSUPPORTED) return UNSUPPORTED;
    const value = parseInteger(array, at, end);
    if (field === FIELD.limit) this.limit = value;
    else if (field === FIELD.duration) this.duration = value;
    else this.cost = value;
    return end;
  }
}

/** The field whose name begins here, behind its quote; NO_FIELD for any other. */
function fieldAt(view: DataView, at: number): number {
  switch (view.getInt32(at, true)) {
    case IDEN: {
      const isIt = view.getInt32(at + 4, true) === TIFI && view.getInt32(at + 8, true) === ER;
      return isIt ? FIELD.identifier : NO_FIELD;
    }
    case NAME: {
      const isIt = view.getInt32(at + 4, true) === SPAC && view.getInt32(at + 7, true) === CE;
      return isIt ? FIELD.namespace : NO_FIELD;
    }
    case DURA: {
      const isIt = view.getInt32(at + 4, true) === TION && view.getInt32(at + 6, true) === ON;
      return isIt ? FIELD.duration : NO_FIELD;
    }
    case LIMI:
      return view.getInt32(at + 3, true) === IT ? FIELD.limit : NO_FIELD;
    case COST:
      return view.getInt32(at + 2, true) === ST ? FIELD.cost : NO_FIELD;
    case ASYN:
      return view.getInt32(at + 3, true) === NC ? FIELD.async : NO_FIELD;
    default:
      return NO_FIELD;
  }
}

function skipSpaces(array: Buffer, from: number): number {
  let at = from;
  while (array[at] === SPACE) at++;
  return at;
}

/** @returns where the end quote is of the text that begins here, or UNUSUAL */
function endOfText(array: Buffer, from: number): number {
  if (array[from] !== QUOTE) return UNSUPPORTED;
  let at = from + 1;
  while (IS_PLAIN_BYTE[array[at]] === 1) at++;
  return array[at] === QUOTE ? at : UNSUPPORTED;
}

/** @returns behind the digits that begin here, or UNUSUAL where they are no whole number in JSON */
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
