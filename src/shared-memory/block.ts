/**
 * How every buffer of shared memory begins: with int32 words of which the first two are a magic
 * number and the version of its layout. The main thread allocates it; who attaches checks that it
 * is what it should be. Where its words lie is drawn in the layout file of each.
 */

import { MemoryError } from '../core/errors.ts';

/** The offsets in words of what a header holds. */
type HeaderOffsets<K extends string> = Readonly<Record<K | 'magic' | 'version', number>>;
/** What it holds there, as far as it is known. */
type HeaderValues<K extends string> = HeaderOffsets<never> & Readonly<Partial<Record<K, number>>>;

/** A buffer that outgrows its predecessor is so much larger than it has to be. */
const GROWTH_FACTOR = 2;

/** Allocates zeros behind a header. */
export function allocateMemory<K extends string>(
  bytes: number,
  header: HeaderOffsets<K>,
  values: HeaderValues<K>,
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
  header: HeaderOffsets<never>,
  spare: SharedArrayBuffer | undefined,
): SharedArrayBuffer {
  if (spare === undefined || spare.byteLength < bytes)
    return new SharedArrayBuffer(GROWTH_FACTOR * bytes);
  Atomics.store(new Int32Array(spare), header.magic, 0);
  return spare;
}

/** Writes the values of a header, the magic number after all that was written before. */
export function writeHeader<K extends string>(
  buffer: SharedArrayBuffer,
  header: HeaderOffsets<K>,
  values: HeaderValues<K>,
): void {
  const words = new Int32Array(buffer);
  for (const [name, value] of Object.entries<number>(values)) {
    if (name !== 'magic') words[header[name as K]] = value;
  }
  Atomics.store(words, header.magic, values.magic);
}

/**
 * @param name names the buffer in an error
 * @param expected what its header must hold; its length is for the caller to check
 * @throws MemoryError when it holds anything else
 */
export function attachMemory<K extends string>(
  buffer: SharedArrayBuffer,
  name: string,
  header: HeaderOffsets<K>,
  expected: HeaderValues<K>,
): Int32Array {
  const words = new Int32Array(buffer);
  for (const [field, value] of Object.entries<number>(expected)) {
    const found = words[header[field as K]];
    if (found !== value) throw new MemoryError(`${name}: its ${field} is ${found}, not ${value}`);
  }
  return words;
}
