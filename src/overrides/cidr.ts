/**
 * CIDR blocks as the identifiers of overrides. A block applies to each identifier that is an
 * address or a network inside of it, in any spelling. The trie matches both as texts of bits: one
 * network contains another exactly if its text is the beginning of the other's.
 */

import { formatBlock, networkBits, parseNetwork } from '../core/ip-network.ts';

/** The one text of a block. @returns undefined if the text is neither a block nor an address */
export function canonicalBlock(text: string): string | undefined {
  const network = parseNetwork(text);
  return network && formatBlock(network);
}

/** The bits of a block or an identifier. @returns undefined for any other text */
export function addressBits(text: string): string | undefined {
  const network = parseNetwork(text);
  return network && networkBits(network);
}
