/**
 * Reads the address of a client from a header, and writes what identifies the client in canonical
 * form. Without one form for each client, it could spread its requests over many counters.
 */

import { isIPv4 } from 'node:net';
import { formatNetwork, isIpv4Network, parseAddress } from '../core/ip-network.ts';

/** Some proxies append the port. */
const ADDRESS_WITH_PORT = /^(?:\[([^\]]*)\]|([^:]*))(?::\d{1,5})?$/;

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
  return addressIdentity(chain.slice(chain.lastIndexOf(',', end - 1) + 1, end), ipv6Prefix);
}

/**
 * @param text one address, with or without a port
 * @param ipv6Prefix how many bits of an IPv6 address identify a client
 * @returns undefined if the text is not an address
 */
export function addressIdentity(text: string, ipv6Prefix: number): string | undefined {
  const trimmed = text.trim();
  // It is canonical already: there is one text of an IPv4 address.
  if (isIPv4(trimmed)) return trimmed;
  const address = parseAddress(trimmed) ?? parseAddress(stripPort(trimmed));
  if (address === undefined) return undefined;
  return formatNetwork(isIpv4Network(address) ? address : { ...address, prefix: ipv6Prefix });
}

function stripPort(text: string): string {
  const [, inBrackets, plain] = ADDRESS_WITH_PORT.exec(text) ?? [];
  return inBrackets ?? plain ?? '';
}
