/** A part of an identity, as `identify` of a policy names it: `ip`, `header:<name>` and others. */

/** What a request is identified by. */
export type Part =
  | { by: 'ip' | 'method' | 'path' }
  /** @param name in lower case for a header, unchanged for a cookie */
  | { by: 'header' | 'cookie' | 'ip:header'; name: string };

/** The name of a header or a cookie (RFC 9110, RFC 6265). */
export const TOKEN = "[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}";
const NAMED_PART = new RegExp(`^(header|cookie|ip:header):(${TOKEN})$`);
/** Headers that gateways set for themselves or that clients forge. For an address use `ip`. */
export const RESERVED_HEADER =
  /^(x-(forwarded|weir)-.*|x-real-ip|forwarded|host|content-length|expect)$/;
/** A reserved header that may be read as an address: a proxy in front can set it. */
export const REAL_IP = 'x-real-ip';
/** Headers of one connection: gateways drop or change them. */
export const HOP_BY_HOP_HEADER =
  /^(connection|keep-alive|proxy-.*|te|trailer|transfer-encoding|upgrade)$/;

/** @returns undefined if the text is not a valid part */
export function readPart(text: string): Part | undefined {
  if (text === 'ip' || text === 'method' || text === 'path') return { by: text };
  const [, by, name] = NAMED_PART.exec(text) ?? [];
  if (by === 'cookie') return { by, name };
  if (by !== 'header' && by !== 'ip:header') return undefined;
  const header = name.toLowerCase();
  if (by === 'ip:header' && header === REAL_IP) return { by, name: header };
  if (RESERVED_HEADER.test(header) || HOP_BY_HOP_HEADER.test(header)) return undefined;
  return { by, name: header };
}

/** Whether the values of a part are addresses. */
export function isAddressPart({ by }: Part): boolean {
  return by === 'ip' || by === 'ip:header';
}
