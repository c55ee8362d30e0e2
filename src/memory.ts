/**
 * How every buffer of shared memory begins: with int32 words of which the first two are a magic
 * number and the version of its layout. The main thread allocates it; who attaches checks that it
 * is what it should be. Where its words lie is drawn in the layout file of each.
 */

import { MemoryError } from './errors.ts';

/** The offsets in words of what a header holds. */
type Header<K extends string> = Readonly<Record<K | 'magic' | 'version', number>>;
/** What it holds there, as far as it is known. */
type Values<K extends string> = Header<never> & Readonly<Partial<Record<K, number>>>;

/** A buffer that outgrows its predecessor is so much larger than it has to be. */
const SPARE = 2;

/** Allocates zeros behind a header. */
export function allocateMemory<K extends string>(
  bytes: number,
  header: Header<K>,
  values: Values<K>,
): SharedArrayBuffer {
  const buffer = new SharedArrayBuffer(bytes);
  writeHeader(buffer, header, values);
  return buffer;
}

/**
 * Memory to be written anew, whose header comes last: until then nobody can attach to it.
 * @param spare a buffer that nobody reads any more, if there is one
 * @returns the spare one where it is large enough, else a larger one
 */
export function reuseMemory(
  bytes: number,
  header: Header<never>,
  spare: SharedArrayBuffer | undefined,
): SharedArrayBuffer {
  if (spare === undefined || spare.byteLength < bytes) return new SharedArrayBuffer(SPARE * bytes);
  Atomics.store(new Int32Array(spare), header.magic, 0);
  return spare;
}

/** Writes the values of a header, the magic number after all that was written before. */
export function writeHeader<K extends string>(
  buffer: SharedArrayBuffer,
  header: Header<K>,
  values: Values<K>,
): void {
  const words = new Int32Array(buffer);
  for (const [name, value] of Object.entries<number>(values)) {
    if (name !== 'magic') words[header[name as K]] = value;
  }
  Atomics.store(words, header.magic, values.magic);
}

/**
 * @param what names the buffer in an error
 * @param wanted what its header must hold; its length is for the caller to check
 * @throws MemoryError when it holds anything else
 */
export function attachMemory<K extends string>(
  buffer: SharedArrayBuffer,
  what: string,
  header: Header<K>,
  wanted: Values<K>,
): Int32Array {
  const words = new Int32Array(buffer);
  for (const [name, value] of Object.entries<number>(wanted)) {
    const found = words[header[name as K]];
    if (found !== value) throw new MemoryError(`${what}: its ${name} is ${found}, not ${value}`);
  }
  return words;
}
