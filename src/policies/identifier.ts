/**
 * Builds the identifier of a gateway's check from the parts of the request that its policy names.
 * Address, method and path come only from fields that the gateway sets. A header or a cookie comes
 * from the client, so it must be one that the application authenticates, or a header with the
 * address of the client that a proxy overwrites.
 *
 * A request without a part has no identifier, and the policy decides about it. A part that is too
 * long, not text or repeated counts as UNIDENTIFIED, not as missing: a client could cause this
 * while the application still recognizes it. All UNIDENTIFIED requests of a policy share a counter.
 * An identifier that is too long is replaced by its digest.
 */

import { hash } from 'node:crypto';
import { IDENTIFIER_MAX_CHARACTERS, IDENTIFIER_PART_MAX_CHARACTERS } from '../core/constants.ts';
import { addressIdentity, clientAddress } from './address.ts';
import { type Gateway, isEnvoyBased } from './gateways.ts';
import { type Part, readPart } from './identity-part.ts';
import { normalizePath } from './path.ts';
import type { Policy } from './policy.ts';

/** The attributes of a request that an identifier may contain. */
export interface RequestAttributes {
  /** In upper case, as received. */
  method: string;
  /** The path after the namespace; '' for none. */
  pathSuffix: string;
  /** All lines of a header, joined by commas (cookies by semicolons); '' if there is none. */
  header(name: string): string;
  /** The number of lines of a header. */
  headerCount(name: string): number;
}

/** The identifier of requests that cannot be distinguished. No other identifier is empty. */
export const UNIDENTIFIED = '';

const FORWARDED_FOR = 'x-forwarded-for';
export const FORWARDED_METHOD = 'x-forwarded-method';
export const FORWARDED_URI = 'x-forwarded-uri';
const COOKIE = 'cookie';
const AUTHORIZATION = 'authorization';

export class IdentifierReader {
  /** The headers that it reads, in lower case. */
  readonly headers: readonly string[];
  /** Describes the parts to a client whose request lacks one. */
  readonly requiredParts: string;
  readonly #policy: Policy;
  readonly #parts: readonly Part[];
  readonly #isEnvoyBased: boolean;

  /** @param gateway that sends the requests: one of those that the policy serves */
  constructor(policy: Policy, gateway: Gateway) {
    this.#policy = policy;
    this.#parts = policy.identify.map((text) => readPart(text)!);
    this.#isEnvoyBased = isEnvoyBased(gateway);
    this.headers = [...new Set(this.#parts.flatMap((part) => this.#headerOfPart(part) ?? []))];
    this.requiredParts = this.#parts.map(describePart).join(' and ');
  }

  /** @returns undefined if a part is missing; UNIDENTIFIED if a part is invalid */
  read(request: RequestAttributes): string | undefined {
    if (this.#parts.length === 1) {
      const value = this.#partValue(request, this.#parts[0]);
      return value === undefined ? undefined : shortenIdentifier(value);
    }
    const parts = this.#parts.map((part) => this.#partValue(request, part));
    // An invalid part takes precedence over a missing one.
    if (parts.includes(UNIDENTIFIED)) return UNIDENTIFIED;
    if (parts.includes(undefined)) return undefined;
    // Escape the separator, so that different parts never give the same identifier.
    const escaped = parts.map((part) => part!.replaceAll('%', '%25').replaceAll('|', '%7C'));
    return shortenIdentifier(escaped.join('|'));
  }

  #partValue(request: RequestAttributes, part: Part): string | undefined {
    const value = this.#rawPartValue(request, part);
    if (value === undefined) return undefined;
    return value.length > IDENTIFIER_PART_MAX_CHARACTERS || value.includes(REPLACEMENT_CHARACTER)
      ? UNIDENTIFIED
      : value;
  }

  #rawPartValue(request: RequestAttributes, part: Part): string | undefined {
    switch (part.by) {
      case 'ip': {
        const { trustedHops, ipv6Prefix } = this.#policy;
        const chain = request.header(FORWARDED_FOR);
        if (chain === '') return undefined;
        return clientAddress(chain, trustedHops, ipv6Prefix) ?? UNIDENTIFIED;
      }
      case 'ip:header': {
        const value = request.header(part.name);
        if (value === '') return undefined;
        if (request.headerCount(part.name) > 1) return UNIDENTIFIED;
        return addressIdentity(value, this.#policy.ipv6Prefix) ?? UNIDENTIFIED;
      }
      case 'method':
        return (
          (this.#isEnvoyBased ? request.method : request.header(FORWARDED_METHOD)) || undefined
        );
      case 'path': {
        const target = this.#isEnvoyBased
          ? pathBehindPrefix(request.pathSuffix)
          : request.header(FORWARDED_URI);
        return target === '' ? undefined : (normalizePath(target) ?? UNIDENTIFIED);
      }
      case 'header': {
        const value = request.header(part.name);
        if (request.headerCount(part.name) > 1) return UNIDENTIFIED;
        // The application may use any of the joined headers.
        if (this.#isEnvoyBased && value.includes(',')) return UNIDENTIFIED;
        const isCredentials = part.name === AUTHORIZATION || SCHEME_AND_JWT.test(value);
        return value === ''
          ? undefined
          : canonicalToken(isCredentials ? canonicalCredentials(value) : value);
      }
      case 'cookie':
        return readCookie(request.header(COOKIE), part.name, this.#isEnvoyBased ? ';,' : ';');
    }
  }

  /** @returns undefined if the part is not in a header */
  #headerOfPart(part: Part): string | undefined {
    switch (part.by) {
      case 'ip':
        return FORWARDED_FOR;
      case 'method':
        return this.#isEnvoyBased ? undefined : FORWARDED_METHOD;
      case 'path':
        return this.#isEnvoyBased ? undefined : FORWARDED_URI;
      case 'header':
      case 'ip:header':
        return part.name;
      case 'cookie':
        return COOKIE;
    }
  }
}

/** Envoy appends `/a` to a prefix that ends with a slash. Paths without `//` are read faster. */
export function pathBehindPrefix(suffix: string): string {
  return suffix.startsWith('//') ? suffix.slice(1) : suffix;
}

function describePart(part: Part): string {
  if (part.by === 'ip') return 'an address';
  if (part.by === 'ip:header') return `an address in the header ${part.name}`;
  return 'name' in part ? `the ${part.by} ${part.name}` : `a ${part.by}`;
}

/**
 * Reads the value of a cookie. Quotes and percent escapes are removed, as applications do:
 * otherwise a client could use one session under many counters. Applications disagree on values
 * that RFC 6265 does not allow, so these count as UNIDENTIFIED, and so do repeated cookies.
 *
 * @param separators that may precede a cookie; with a comma if the gateway joins headers
 */
function readCookie(header: string, name: string, separators: string): string | undefined {
  let found: string | undefined;
  for (let at = header.indexOf(name); at >= 0; at = header.indexOf(name, at + 1)) {
    const before = skipBlanks(header, at - 1, -1);
    const equals = skipBlanks(header, at + name.length, 1);
    const isStart = before < 0 || separators.includes(header[before]);
    const isName = isStart && header[equals] === '=';
    if (!isName) continue;
    if (found !== undefined) return UNIDENTIFIED;
    const end = header.indexOf(';', equals);
    found = trimBlanks(header.slice(equals + 1, end < 0 ? header.length : end));
  }
  if (found === undefined) return undefined;
  const value = found.replace(/^"(.*)"$/, '$1');
  if (!COOKIE_VALUE.test(value)) return UNIDENTIFIED;
  const text = percentDecode(value);
  return text === '' ? undefined : canonicalToken(text);
}

/** The cookie-octets of RFC 6265: no blanks, quotes, commas, semicolons or backslashes. */
const COOKIE_VALUE = /^[!#-+\--:<-[\]-~]*$/;

/**
 * Removes all characters that some application treats as blank. A regular expression would take
 * quadratic time on a long run of blanks.
 */
function trimBlanks(text: string): string {
  return text.slice(skipBlanks(text, 0, 1), skipBlanks(text, text.length - 1, -1) + 1);
}

/** @returns the index of the first non-blank in this direction; -1 or the length for none */
function skipBlanks(text: string, from: number, step: 1 | -1): number {
  let at = from;
  while (at >= 0 && at < text.length && BLANK.test(text[at])) at += step;
  return at;
}

const BLANK = /[\s\u0085]/;

function percentDecode(text: string): string {
  if (!text.includes('%')) return text;
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/**
 * The scheme ignores case and the number of blanks after it. Of a Bearer or Basic token only the
 * part that applications read counts. Base64 has several encodings of the same bytes, so it is
 * decoded and encoded again.
 */
function canonicalCredentials(authorization: string): string {
  const [, scheme, rest] = CREDENTIALS.exec(authorization) ?? [];
  if (scheme === undefined) return authorization;
  const name = scheme.toLowerCase();
  const [token] = rest.split(/\s/, 1);
  if (name === 'basic')
    return BASE64.test(token) ? `basic ${canonicalBase64(token, 'base64')}` : UNIDENTIFIED;
  return `${name} ${name === 'bearer' || JWT.test(token) ? token : rest}`;
}

const CREDENTIALS = /^(\S+)\s+(.*)$/s;
/** Other characters are invalid: some decoders skip them and others stop there. */
const BASE64 = /^[a-z0-9+/]*=*$/i;
const BASE64_URL = /^[a-z0-9+/_-]*=*$/i;

function canonicalBase64(text: string, encoding: 'base64' | 'base64url'): string {
  return Buffer.from(text, 'base64').toString(encoding);
}

/**
 * The canonical form of a JSON Web Token, with or without a scheme before it. Its signed parts are
 * signed as text, so that only the other parts can be written differently.
 */
function canonicalToken(text: string): string {
  const at = text.lastIndexOf(' ') + 1;
  const token = text.slice(at);
  if (!JWT.test(token)) return text;
  const parts = token.split('.');
  // An encrypted token has five parts, and only the first one is authenticated as text.
  const signedCount = parts.length === 5 ? 1 : 2;
  const signed = parts.slice(0, signedCount);
  const unsigned = parts.slice(signedCount);
  if (!unsigned.every((part) => BASE64_URL.test(part))) return UNIDENTIFIED;
  const canonical = unsigned.map((part) => canonicalBase64(part, 'base64url'));
  return text.slice(0, at) + [...signed, ...canonical].join('.');
}

/** Three or five parts; the first is the base64 of a JSON object. */
const JWT = /^e(?:y[AJ]|w[0ok])[^.]*(?:\.[^.]*){2}(?:(?:\.[^.]*){2})?$/;
const SCHEME_AND_JWT = /^\S+\s+e(?:y[AJ]|w[0ok])[^.\s]*\./;

/** Replaces bytes that were not UTF-8, so different values could look equal. */
const REPLACEMENT_CHARACTER = '\ufffd';

function shortenIdentifier(text: string): string {
  const isShort =
    text.length <= IDENTIFIER_MAX_CHARACTERS ||
    // A code point has at most two units, so a longer text need not be counted.
    (text.length <= 2 * IDENTIFIER_MAX_CHARACTERS && [...text].length <= IDENTIFIER_MAX_CHARACTERS);
  return isShort ? text : `sha256:${hash('sha256', text)}`;
}
