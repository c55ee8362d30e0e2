/**
 * Reads the client address from `X-Forwarded-For` and writes it in canonical form. Without one form
 * for each address, a client could spread its requests over many counters.
 */

import { isIPv4, isIPv6 } from 'node:net';

/** Some proxies append the port. */
const ADDRESS_WITH_PORT = /^(?:\[([^\]]*)\]|([^:]*))(?::\d{1,5})?$/;
const GROUPS = 8;
const GROUP_BITS = 16;

/**
 * @param chain all lines of the header, joined by commas; '' if there is none
 * @param hops number of trusted proxies: the client is this element of the chain from the right
 * @param ipv6Prefix how many bits of an IPv6 address identify a client
 * @returns undefined if that element is not an address
 */
export function clientAddress(chain: string, hops: number, ipv6Prefix: number): string | undefined {
  let end = chain.length;
  for (let hop = 1; hop < hops; hop++) {
    end = chain.lastIndexOf(',', end - 1);
    // The request did not pass through all trusted proxies.
    if (end <= 0) return undefined;
  }
  const text = chain.slice(chain.lastIndexOf(',', end - 1) + 1, end).trim();
  if (isIPv4(text)) return text;
  const bare = isIPv6(text) ? text : stripPort(text);
  if (isIPv4(bare)) return bare;
  return isIPv6(bare) ? formatNetwork(ipv6Groups(bare), ipv6Prefix) : undefined;
}

function stripPort(text: string): string {
  const [, inBrackets, plain] = ADDRESS_WITH_PORT.exec(text) ?? [];
  return inBrackets ?? plain ?? '';
}

/** @param text a valid IPv6 address */
function ipv6Groups(text: string): number[] {
  const [address] = text.split('%');
  const [left, right] = address.split('::');
  const before = parseGroups(left);
  if (right === undefined) return before;
  const after = parseGroups(right);
  const zeros = new Array<number>(GROUPS - before.length - after.length).fill(0);
  return [...before, ...zeros, ...after];
}

/** @param part without `::`; its last two groups may be written as an IPv4 address */
function parseGroups(part: string): number[] {
  if (part === '') return [];
  return part.split(':').flatMap((group) => {
    if (!group.includes('.')) return Number.parseInt(group, 16);
    const [a, b, c, d] = group.split('.').map(Number);
    return [a * 256 + b, c * 256 + d];
  });
}

function formatNetwork(groups: readonly number[], prefix: number): string {
  const isMapped = groups.slice(0, 5).every((group) => group === 0) && groups[5] === 0xffff;
  if (isMapped) {
    const [high, low] = groups.slice(6);
    return [high >> 8, high & 255, low >> 8, low & 255].join('.');
  }
  const network = groups.map((group, i) => {
    const bits = Math.min(Math.max(prefix - i * GROUP_BITS, 0), GROUP_BITS);
    return group & (0xffff << (GROUP_BITS - bits)) & 0xffff;
  });
  const text = compressZeros(network);
  return prefix === GROUPS * GROUP_BITS ? text : `${text}/${prefix}`;
}

/** RFC 5952: `::` replaces the longest run of at least two zeros; the first one of equal length. */
function compressZeros(groups: readonly number[]): string {
  let from = 0;
  let length = 1;
  for (let i = 0; i < GROUPS; i++) {
    let end = i;
    while (end < GROUPS && groups[end] === 0) end++;
    if (end - i > length) {
      from = i;
      length = end - i;
    }
  }
  const hex = (part: readonly number[]) => part.map((group) => group.toString(16)).join(':');
  if (length === 1) return hex(groups);
  return `${hex(groups.slice(0, from))}::${hex(groups.slice(from + length))}`;
}
