/**
 * Decodes the Huffman code of HPACK (RFC 7541, appendix B), four bits at a time. Text that is not
 * encoded as the RFC demands is undefined: the caller ends the connection.
 */

import type { Latin1Buffer } from './latin1.ts';

/** Bits of the code of each byte, and of EOS. The code is canonical, so its lengths define it. */
const CODE_LENGTHS = [
  13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 30, 28,
  28, 28, 28, 28, 28, 28, 28, 28, 6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6, 5, 5, 5,
  6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10, 13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7,
  7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6, 15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5, 6,
  7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28, 20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23,
  23, 23, 24, 23, 24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24, 22, 21, 20, 22,
  22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23, 21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22,
  23, 22, 22, 23, 26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25, 19, 21, 26, 27,
  27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27, 20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25,
  24, 24, 26, 23, 26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26, 30,
];
const EOS = 256;
const CODE_LENGTH_MIN = 5;
const CODE_LENGTH_MAX = 30;

/**
 * For each node of the code and the next four bits: the next node, above the symbol, above flags.
 * Four bits complete at most one symbol, because each has at least five.
 */
const HAS_SYMBOL = 1;
const IS_INVALID = 2;
/** The bits since the last symbol are at most 7, and all ones. */
const MAY_END = 4;
const SYMBOL_SHIFT = 3;
const NODE_SHIFT = 11;
const TRANSITIONS = buildTransitions();

/** The shortest code has 5 bits. */
const SYMBOLS_PER_BYTE_MAX = 8 / CODE_LENGTH_MIN;

let scratch = Buffer.allocUnsafe(1_024) as Latin1Buffer;

/** @returns undefined if it has EOS, or padding that is too long or has zeros */
export function decodeHuffman(bytes: Buffer, start: number, end: number): string | undefined {
  const longest = Math.ceil((end - start) * SYMBOLS_PER_BYTE_MAX);
  if (scratch.length < longest) scratch = Buffer.allocUnsafe(2 * longest) as Latin1Buffer;
  const decoded = scratch;
  let length = 0;
  let transition = MAY_END;
  for (let at = start; at < end; at++) {
    const byte = bytes[at];
    transition = TRANSITIONS[((transition >> NODE_SHIFT) << 4) | (byte >> 4)];
    if ((transition & HAS_SYMBOL) !== 0) decoded[length++] = transition >> SYMBOL_SHIFT;
    if ((transition & IS_INVALID) !== 0) return undefined;
    transition = TRANSITIONS[((transition >> NODE_SHIFT) << 4) | (byte & 15)];
    if ((transition & HAS_SYMBOL) !== 0) decoded[length++] = transition >> SYMBOL_SHIFT;
    if ((transition & IS_INVALID) !== 0) return undefined;
  }
  return (transition & MAY_END) === 0 ? undefined : decoded.latin1Slice(0, length);
}

/** A node of the code has the next node, or the symbol as -1 - symbol, for each value of a bit. */
type Node = [number, number];

function buildTransitions(): Uint32Array {
  const { nodes, mayEnd } = buildTree();
  const transitions = new Uint32Array(nodes.length << 4);
  for (let from = 0; from < nodes.length; from++) {
    for (let nibble = 0; nibble < 16; nibble++) {
      let node = from;
      let flags = 0;
      let symbol = 0;
      for (let bit = 3; bit >= 0; bit--) {
        const next = nodes[node][(nibble >> bit) & 1];
        node = Math.max(0, next);
        if (next >= 0) continue;
        symbol = -1 - next;
        flags = symbol === EOS ? IS_INVALID : HAS_SYMBOL;
        if (symbol === EOS) break;
      }
      if (mayEnd.has(node)) flags |= MAY_END;
      transitions[(from << 4) | nibble] =
        (node << NODE_SHIFT) | ((symbol & 255) << SYMBOL_SHIFT) | flags;
    }
  }
  return transitions;
}

/** @returns the nodes, of which the first is the root, and those that padding may end at */
function buildTree(): { nodes: Node[]; mayEnd: Set<number> } {
  const nodes: Node[] = [[0, 0]];
  let code = 0;
  for (let length = CODE_LENGTH_MIN; length <= CODE_LENGTH_MAX; length++) {
    code *= 2;
    for (const [symbol, codeLength] of CODE_LENGTHS.entries()) {
      if (codeLength === length) addCode(nodes, code++, length, symbol);
    }
  }
  const mayEnd = new Set<number>();
  let node = 0;
  for (let bits = 0; bits < 8; bits++) {
    mayEnd.add(node);
    node = nodes[node][1];
  }
  return { nodes, mayEnd };
}

function addCode(nodes: Node[], code: number, length: number, symbol: number): void {
  let node = 0;
  for (let bit = length - 1; bit > 0; bit--) {
    const value = (code >> bit) & 1;
    if (nodes[node][value] === 0) nodes[node][value] = nodes.push([0, 0]) - 1;
    node = nodes[node][value];
  }
  nodes[node][code & 1] = -1 - symbol;
}
