/**
 * Who asks, as a policy has it: parts of the request that its gateway sends, put together to one
 * identifier. Only what the gateway itself sets is believed of addresses, methods and paths; a
 * header or a cookie is the caller's own word, and has to be one that the application believes.
 *
 * Whatever is not there, is longer than an identifier may be or is no text, is no identity, and
 * neither is what is there twice, for nobody knows which one the application will believe. What
 * becomes of such a caller is its policy's to say.
 */

import { IDENTIFIER_MAX_CHARACTERS } from '../limits.ts';
import { addressIn } from './address.ts';
import { pathIn } from './path.ts';
import type { Gateway, Policy } from './policy.ts';

/** What a request is looked through for. */
export interface Asking {
  /** In capitals, as it came. */
  method: string;
  /** What stands behind the namespace in the path, '' for nothing. */
  tail: string;
  /** All lines of a header, joined as HTTP has it; '' when there is none. */
  header(name: string): string;
  /** The only line of a header; '' when there is none, or more than one. */
  onlyLine(name: string): string;
}

type Part =
  | { by: 'ip' | 'method' | 'path' }
  /** @param name of a header in lower case, of a cookie as it is */
  | { by: 'header' | 'cookie'; name: string };

const FORWARDED_FOR = 'x-forwarded-for';
const FORWARDED_METHOD = 'x-forwarded-method';
const FORWARDED_URI = 'x-forwarded-uri';
const COOKIE = 'cookie';
const AUTHORIZATION = 'authorization';

/** These ask with the method of the request, and have its path behind the namespace's. */
const BY_TAIL: readonly Gateway[] = ['envoy', 'istio'];

/** What names a header or a cookie, by RFC 9110 and RFC 6265. */
const TOKEN = "[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}";
const NAMED = new RegExp(`^(header|cookie):(${TOKEN})$`);
/** What gateways set for themselves, or clients forge: an address is `ip`. */
const NOT_THEIRS =
  /^(x-(forwarded|weir)-.*|x-real-ip|forwarded|host|connection|content-length|transfer-encoding)$/;

/** @returns undefined for what is no part of an identity */
export function readPart(text: string): Part | undefined {
  if (text === 'ip' || text === 'method' || text === 'path') return { by: text };
  const [, by, name] = NAMED.exec(text) ?? [];
  if (by === 'cookie') return { by, name };
  if (by !== 'header' || NOT_THEIRS.test(name.toLowerCase())) return undefined;
  return { by, name: name.toLowerCase() };
}

export class IdentityReader {
  /** The headers that it asks for, in lower case. */
  readonly headers: readonly string[];
  /** What a caller that has none is told that it lacks. */
  readonly wanted: string;
  readonly #policy: Policy;
  readonly #parts: readonly Part[];
  readonly #isByTail: boolean;

  constructor(policy: Policy) {
    this.#policy = policy;
    this.#parts = policy.identify.map((text) => readPart(text)!);
    this.#isByTail = BY_TAIL.includes(policy.gateway);
    this.headers = [...new Set(this.#parts.flatMap((part) => this.#headerOf(part) ?? []))];
    this.wanted = this.#parts.map(nameOf).join(' and ');
  }

  /** @returns undefined where a part of it is missing */
  read(asking: Asking): string | undefined {
    const parts = this.#parts;
    if (parts.length === 1) return bounded(this.#part(asking, parts[0]));
    let identifier = '';
    for (const part of parts) {
      const value = this.#part(asking, part);
      if (value === '') return undefined;
      // No two identities are written alike: what separates the parts stands in none.
      if (identifier !== '') identifier += '|';
      identifier += value.replaceAll('%', '%25').replaceAll('|', '%7C');
    }
    return bounded(identifier);
  }

  /** @returns '' where it is missing */
  #part(asking: Asking, part: Part): string {
    switch (part.by) {
      case 'ip': {
        const { trustedHops, ipv6Prefix } = this.#policy;
        return addressIn(asking.header(FORWARDED_FOR), trustedHops, ipv6Prefix) ?? '';
      }
      case 'method':
        return this.#isByTail ? asking.method : asking.header(FORWARDED_METHOD);
      case 'path':
        return pathIn(this.#isByTail ? asking.tail : asking.header(FORWARDED_URI));
      case 'header':
        return part.name === AUTHORIZATION
          ? credentialsIn(asking.onlyLine(AUTHORIZATION))
          : asking.onlyLine(part.name);
      case 'cookie':
        return cookieIn(asking.header(COOKIE), part.name);
    }
  }

  #headerOf({ by, ...part }: Part): string | undefined {
    if (by === 'ip') return FORWARDED_FOR;
    if (by === 'cookie') return COOKIE;
    if (by === 'header') return (part as { name: string }).name;
    if (this.#isByTail) return undefined;
    return by === 'method' ? FORWARDED_METHOD : FORWARDED_URI;
  }
}

function nameOf(part: Part): string {
  if (part.by === 'ip') return 'an address';
  return 'name' in part ? `the ${part.by} ${part.name}` : `a ${part.by}`;
}

/**
 * The one of a name, '' when there is none, or more. Applications take away quotes and escapes of a
 * value; left in, one session would have as many counters as it has spellings.
 */
function cookieIn(header: string, name: string): string {
  let found: string | undefined;
  for (const pair of header.split(';')) {
    const equals = pair.indexOf('=');
    if (equals < 0 || trimmed(pair.slice(0, equals)) !== name) continue;
    if (found !== undefined) return '';
    found = trimmed(pair.slice(equals + 1));
  }
  return found === undefined ? '' : unescaped(found.replace(/^"(.*)"$/, '$1'));
}

/** Of what HTTP takes for blanks; by a pattern it would take the square of a long run of them. */
function trimmed(text: string): string {
  let from = 0;
  let to = text.length;
  while (from < to && isBlank(text[from])) from++;
  while (to > from && isBlank(text[to - 1])) to--;
  return text.slice(from, to);
}

function isBlank(character: string): boolean {
  return character === ' ' || character === '\t';
}

function unescaped(text: string): string {
  if (!text.includes('%')) return text;
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** Its scheme is so in any case, before any number of blanks. */
function credentialsIn(authorization: string): string {
  return authorization.replace(/^([^ ]+) +/, (_, scheme: string) => `${scheme.toLowerCase()} `);
}

/** Bytes that were no UTF-8 came as this: many different ones would be one. */
const NO_TEXT = '\ufffd';

function bounded(text: string): string | undefined {
  if (text === '' || text.includes(NO_TEXT)) return undefined;
  if (text.length <= IDENTIFIER_MAX_CHARACTERS) return text;
  return [...text].length <= IDENTIFIER_MAX_CHARACTERS ? text : undefined;
}
