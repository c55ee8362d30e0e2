/**
 * The header of shared buffers: int32 words, which the layout file of each buffer draws. A thread
 * that attaches compares the header with what it expects, and gets a MemoryError where they differ.
 * A buffer that is rewritten while it is published has a magic number, which is stored last.
 */

import { MemoryError } from '../core/errors.ts';

/** The offsets of header fields in words. */
type HeaderOffsets<K extends string> = Readonly<Record<K, number>>;
/** The values of header fields, as far as they are known. */
type HeaderValues<K extends string> = Readonly<Partial<Record<K, number>>>;

/** A new buffer has this multiple of the bytes that are needed, so that tables can grow in it. */
const GROWTH_FACTOR = 2;

/** Allocates a zeroed buffer with a header. */
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
 * Finds a buffer to be written from scratch. No thread can attach until `writeHeader` is called.
 * @param spare a buffer without readers, if there is one
 * @returns the spare buffer where it is large enough, else a larger one
 */
export function reuseMemory(
  bytes: number,
  header: HeaderOffsets<'magic'>,
  spare: SharedArrayBuffer | undefined,
): SharedArrayBuffer {
  if (spare === undefined || spare.byteLength < bytes)
    return new SharedArrayBuffer(GROWTH_FACTOR * bytes);
  Atomics.store(new Int32Array(spare), header.magic, 0);
  return spare;
}

/** Writes a header. A magic number comes last and publishes everything written before. */
export function writeHeader<K extends string>(
  buffer: SharedArrayBuffer,
  header: HeaderOffsets<K>,
  values: HeaderValues<K>,
): void {
  const words = new Int32Array(buffer);
  const fields = Object.entries(values) as [K, number][];
  for (const [name, value] of fields) if (name !== 'magic') words[header[name]] = value;
  for (const [name, value] of fields)
    if (name === 'magic') Atomics.store(words, header[name], value);
}

/**
 * @param name names the buffer in an error
 * @param expected the expected header; the caller checks the length of the buffer
 * @throws MemoryError when a header field has another value
 */
export function attachMemory<K extends string>(
  buffer: SharedArrayBuffer,
  name: string,
  header: HeaderOffsets<K>,
  expected: HeaderValues<K>,
): Int32Array {
  const words = new Int32Array(buffer);
  for (const [field, value] of Object.entries(expected) as [K, number][]) {
    const found = words[header[field]];
    if (found !== value) throw new MemoryError(`${name}: its ${field} is ${found}, not ${value}`);
  }
  return words;
}
