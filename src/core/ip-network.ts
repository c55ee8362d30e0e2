/**
 * IP addresses and networks, each with one canonical text. An IPv4 address inside of an IPv6 one
 * (mapped, or by the prefix of NAT64) is the IPv4 address: the client is the same. A text that is
 * no address is undefined, not an error.
 */

import { isIPv4, isIPv6 } from 'node:net';

/** An address, or all addresses with the same first bits. */
export interface IpNetwork {
  /** Groups of 16 bits: 2 for IPv4, 8 for IPv6. Bits after the prefix may be set. */
  groups: readonly number[];
  /** Number of bits that the addresses have in common; all bits for one address. */
  prefix: number;
}

const GROUP_BITS = 16;
const IPV4_BITS = 32;
const IPV6_BITS = 128;
/** The first bits of an IPv6 address before an IPv4 address. */
const EMBEDDING_BITS = IPV6_BITS - IPV4_BITS;
/** `::ffff:0:0/96` (RFC 4291) and `64:ff9b::/96` (RFC 6052). */
const EMBEDDINGS = [
  [0, 0, 0, 0, 0, 0xffff],
  [0x64, 0xff9b, 0, 0, 0, 0],
];
/** A number of bits, without leading zeros. */
const LENGTH = /^(?:0|[1-9]\d{0,2})$/;
const DOT = 0x2e;
const ZERO = 0x30;

/** @param text an address without a port */
export function parseAddress(text: string): IpNetwork | undefined {
  return parseNetworkOf(text, undefined);
}

/** @param text an address, or a network such as `2001:db8::/32` */
export function parseNetwork(text: string): IpNetwork | undefined {
  const slash = text.indexOf('/');
  if (slash < 0) return parseAddress(text);
  const length = text.slice(slash + 1);
  return LENGTH.test(length) ? parseNetworkOf(text.slice(0, slash), Number(length)) : undefined;
}

/** @param prefix undefined for all bits */
function parseNetworkOf(address: string, prefix: number | undefined): IpNetwork | undefined {
  if (isIPv4(address)) {
    const bits = prefix ?? IPV4_BITS;
    return bits > IPV4_BITS ? undefined : { groups: ipv4Groups(address), prefix: bits };
  }
  const bits = prefix ?? IPV6_BITS;
  if (bits > IPV6_BITS || !isIPv6(address)) return undefined;
  return withoutEmbedding({ groups: ipv6Groups(address), prefix: bits });
}

export function isIpv4Network({ groups }: IpNetwork): boolean {
  return groups.length * GROUP_BITS === IPV4_BITS;
}

export function isSingleAddress({ groups, prefix }: IpNetwork): boolean {
  return prefix === groups.length * GROUP_BITS;
}

/** The canonical text: of a single address without its length. */
export function formatNetwork(network: IpNetwork): string {
  return isSingleAddress(network) ? formatAddress(network.groups) : formatBlock(network);
}

/** The canonical text, always with the length: `203.0.113.0/24`, `203.0.113.7/32`. */
export function formatBlock({ groups, prefix }: IpNetwork): string {
  return `${formatAddress(maskGroups(groups, prefix))}/${prefix}`;
}

/**
 * The bits of the prefix as a text of 0 and 1 after the version. One network contains another
 * exactly if its text is the beginning of the other's.
 */
export function networkBits(network: IpNetwork): string {
  let bits = isIpv4Network(network) ? '4' : '6';
  for (const group of network.groups) bits += BYTE_BITS[group >> 8] + BYTE_BITS[group & 255];
  return bits.slice(0, 1 + network.prefix);
}

const BYTE_BITS = Array.from({ length: 256 }, (_, byte) => byte.toString(2).padStart(8, '0'));

function withoutEmbedding({ groups, prefix }: IpNetwork): IpNetwork {
  const isEmbedding = EMBEDDINGS.some((start) => start.every((group, i) => group === groups[i]));
  if (!isEmbedding || prefix < EMBEDDING_BITS) return { groups, prefix };
  return { groups: groups.slice(EMBEDDING_BITS / GROUP_BITS), prefix: prefix - EMBEDDING_BITS };
}

/** @param text a valid IPv4 address */
function ipv4Groups(text: string): number[] {
  let bits = 0;
  let byte = 0;
  for (let i = 0; i < text.length; i++) {
    const unit = text.charCodeAt(i);
    if (unit !== DOT) byte = 10 * byte + unit - ZERO;
    else {
      bits = bits * 256 + byte;
      byte = 0;
    }
  }
  bits = bits * 256 + byte;
  return [bits >>> GROUP_BITS, bits & 0xffff];
}

/** @param text a valid IPv6 address */
function ipv6Groups(text: string): number[] {
  const zone = text.indexOf('%');
  const address = zone < 0 ? text : text.slice(0, zone);
  const gap = address.indexOf('::');
  if (gap < 0) return parseGroups(address);
  const before = parseGroups(address.slice(0, gap));
  const after = parseGroups(address.slice(gap + 2));
  const missing = IPV6_BITS / GROUP_BITS - before.length - after.length;
  return [...before, ...new Array<number>(missing).fill(0), ...after];
}

/** @param part without `::`; its last two groups may be written as an IPv4 address */
function parseGroups(part: string): number[] {
  if (part === '') return [];
  const groups: number[] = [];
  for (const group of part.split(':')) {
    if (group.includes('.')) groups.push(...ipv4Groups(group));
    else groups.push(Number.parseInt(group, 16));
  }
  return groups;
}

function maskGroups(groups: readonly number[], prefix: number): number[] {
  return groups.map((group, i) => {
    const bits = Math.min(Math.max(prefix - i * GROUP_BITS, 0), GROUP_BITS);
    return group & (0xffff << (GROUP_BITS - bits)) & 0xffff;
  });
}

function formatAddress(groups: readonly number[]): string {
  if (groups.length * GROUP_BITS === IPV6_BITS) return compressZeros(groups);
  return groups.flatMap((group) => [group >> 8, group & 255]).join('.');
}

/** RFC 5952: `::` replaces the longest run of at least two zeros; the first one of equal length. */
function compressZeros(groups: readonly number[]): string {
  let from = 0;
  let length = 1;
  for (let i = 0; i < groups.length; i++) {
    let end = i;
    while (end < groups.length && groups[end] === 0) end++;
    if (end - i > length) {
      from = i;
      length = end - i;
    }
  }
  const hex = (part: readonly number[]) => part.map((group) => group.toString(16)).join(':');
  if (length === 1) return hex(groups);
  return `${hex(groups.slice(0, from))}::${hex(groups.slice(from + length))}`;
}
