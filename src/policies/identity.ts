/**
 * Who asks, as a policy has it: parts of the request that its gateway sends, put together to one
 * identifier. Only what the gateway itself sets is believed of addresses, methods and paths; a
 * header or a cookie is the caller's own word, and has to be one that the application believes.
 *
 * Who leaves out a part of it has no identity, and what becomes of such a caller is its policy's to
 * say. What is too long, or no text, or there twice, so that nobody knows which one the application
 * will believe, is not left out: a client can bring it about while the application knows it well.
 * All of these callers are one. What is longer than an identifier may be is one by its digest.
 */

import { hash } from 'node:crypto';
import { IDENTIFIER_MAX_CHARACTERS, IDENTITY_PART_MAX_CHARACTERS } from '../core/constants.ts';
import { clientAddress } from './address.ts';
import { normalizePath } from './path.ts';
import type { Gateway, Policy } from './policy.ts';

/** What a request is looked through for. */
export interface RequestAttributes {
  /** In capitals, as it came. */
  method: string;
  /** What stands behind the namespace in the path, '' for nothing. */
  pathSuffix: string;
  /** All lines of a header, joined as HTTP has it; '' when there is none. */
  header(name: string): string;
  /** How many lines of a header there are. */
  headerCount(name: string): number;
}

type Part =
  | { by: 'ip' | 'method' | 'path' }
  /** @param name of a header in lower case, of a cookie as it is */
  | { by: 'header' | 'cookie'; name: string };

/** Of all who cannot be told apart, and of nobody else: no part of an identity is empty. */
export const UNIDENTIFIED = '';

const FORWARDED_FOR = 'x-forwarded-for';
const FORWARDED_METHOD = 'x-forwarded-method';
const FORWARDED_URI = 'x-forwarded-uri';
const COOKIE = 'cookie';
const AUTHORIZATION = 'authorization';

/** These ask with the method of the request, and have its path behind the namespace's. */
const PATH_SUFFIX_GATEWAYS: readonly Gateway[] = ['envoy', 'istio'];
/** These join repeated headers with a comma in a check, and forward them one by one. */
const HEADER_JOINING_GATEWAYS: readonly Gateway[] = ['envoy', 'istio'];

/** What names a header or a cookie, by RFC 9110 and RFC 6265. */
const TOKEN = "[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}";
const NAMED_PART = new RegExp(`^(header|cookie):(${TOKEN})$`);
/** What gateways set for themselves, or clients forge: an address is `ip`. */
const RESERVED_HEADER = /^(x-(forwarded|weir)-.*|x-real-ip|forwarded|host|content-length|expect)$/;
/** Of one connection only: not passed on, or not as it came. */
const HOP_BY_HOP_HEADER = /^(connection|keep-alive|proxy-.*|te|trailer|transfer-encoding|upgrade)$/;

/** @returns undefined for what is no part of an identity */
export function readPart(text: string): Part | undefined {
  if (text === 'ip' || text === 'method' || text === 'path') return { by: text };
  const [, by, name] = NAMED_PART.exec(text) ?? [];
  if (by === 'cookie') return { by, name };
  const header = name?.toLowerCase();
  if (by !== 'header' || RESERVED_HEADER.test(header) || HOP_BY_HOP_HEADER.test(header))
    return undefined;
  return { by, name: header };
}

export class IdentityReader {
  /** The headers that it asks for, in lower case. */
  readonly headers: readonly string[];
  /** What a caller that has none is told that it lacks. */
  readonly requiredParts: string;
  readonly #policy: Policy;
  readonly #parts: readonly Part[];
  readonly #usesPathSuffix: boolean;
  readonly #joinsHeaders: boolean;

  constructor(policy: Policy) {
    this.#policy = policy;
    this.#parts = policy.identify.map((text) => readPart(text)!);
    this.#usesPathSuffix = PATH_SUFFIX_GATEWAYS.includes(policy.gateway);
    this.#joinsHeaders = HEADER_JOINING_GATEWAYS.includes(policy.gateway);
    this.headers = [...new Set(this.#parts.flatMap((part) => this.#headerOfPart(part) ?? []))];
    this.requiredParts = this.#parts.map(describePart).join(' and ');
  }

  /** @returns undefined where a part is left out, ANYBODY where one cannot be taken for one */
  read(request: RequestAttributes): string | undefined {
    if (this.#parts.length === 1) {
      const value = this.#partValue(request, this.#parts[0]);
      return value === undefined ? undefined : shortenIdentifier(value);
    }
    const parts = this.#parts.map((part) => this.#partValue(request, part));
    // Before what is left out: who sends one that is none has not left out all of them.
    if (parts.includes(UNIDENTIFIED)) return UNIDENTIFIED;
    if (parts.includes(undefined)) return undefined;
    // No two identities are written alike: what separates the parts stands in none.
    const escaped = parts.map((part) => part!.replaceAll('%', '%25').replaceAll('|', '%7C'));
    return shortenIdentifier(escaped.join('|'));
  }

  #partValue(request: RequestAttributes, part: Part): string | undefined {
    const value = this.#rawPartValue(request, part);
    if (value === undefined) return undefined;
    return value.length > IDENTITY_PART_MAX_CHARACTERS || value.includes(REPLACEMENT_CHARACTER)
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
      case 'method':
        return (
          (this.#usesPathSuffix ? request.method : request.header(FORWARDED_METHOD)) || undefined
        );
      case 'path': {
        const target = this.#usesPathSuffix ? request.pathSuffix : request.header(FORWARDED_URI);
        return target === '' ? undefined : (normalizePath(target) ?? UNIDENTIFIED);
      }
      case 'header': {
        const value = request.header(part.name);
        if (request.headerCount(part.name) > 1) return UNIDENTIFIED;
        // The application may believe any of the headers that the comma joins.
        if (this.#joinsHeaders && value.includes(',')) return UNIDENTIFIED;
        const isCredentials = part.name === AUTHORIZATION || SCHEME_AND_JWT.test(value);
        return value === ''
          ? undefined
          : canonicalToken(isCredentials ? canonicalCredentials(value) : value);
      }
      case 'cookie':
        return readCookie(request.header(COOKIE), part.name, this.#joinsHeaders ? ';,' : ';');
    }
  }

  /** @returns undefined where it stands in the request itself */
  #headerOfPart(part: Part): string | undefined {
    switch (part.by) {
      case 'ip':
        return FORWARDED_FOR;
      case 'method':
        return this.#usesPathSuffix ? undefined : FORWARDED_METHOD;
      case 'path':
        return this.#usesPathSuffix ? undefined : FORWARDED_URI;
      case 'header':
        return part.name;
      case 'cookie':
        return COOKIE;
    }
  }
}

function describePart(part: Part): string {
  if (part.by === 'ip') return 'an address';
  return 'name' in part ? `the ${part.by} ${part.name}` : `a ${part.by}`;
}

/**
 * The only one of a name. Applications take away quotes and escapes: left in, one session would
 * have as many counters as it has spellings. What RFC 6265 has in no value, each of them reads in a
 * way of its own, so that nobody knows what they take it for.
 *
 * @param separators what may stand in front of a cookie: also a comma where it joins headers
 */
function readCookie(header: string, name: string, separators: string): string | undefined {
  let found: string | undefined;
  for (let at = header.indexOf(name); at >= 0; at = header.indexOf(name, at + 1)) {
    const before = skipBlanks(header, at - 1, -1);
    const behind = skipBlanks(header, at + name.length, 1);
    const isFirst = before < 0 || separators.includes(header[before]);
    const isName = isFirst && header[behind] === '=';
    if (!isName) continue;
    if (found !== undefined) return UNIDENTIFIED;
    const end = header.indexOf(';', behind);
    found = trimBlanks(header.slice(behind + 1, end < 0 ? header.length : end));
  }
  if (found === undefined) return undefined;
  const value = found.replace(/^"(.*)"$/, '$1');
  if (!COOKIE_VALUE.test(value)) return UNIDENTIFIED;
  const text = percentDecode(value);
  return text === '' ? undefined : canonicalToken(text);
}

/** The cookie-octets of RFC 6265: no blanks, quotes, commas, semicolons and backslashes. */
const COOKIE_VALUE = /^[!#-+\--:<-[\]-~]*$/;

/** Without what any application takes for blanks; a pattern takes the square of a long run. */
function trimBlanks(text: string): string {
  return text.slice(skipBlanks(text, 0, 1), skipBlanks(text, text.length - 1, -1) + 1);
}

/** @returns where the first is, in this direction, that is none; -1 or the length for nowhere */
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
 * A scheme is so in any case, before any number of blanks. Of a token no more counts than an
 * application takes, and of one in base64 what it says: the same can be written in many ways.
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
/** Of what else is between, decoders take no notice, or end at it, each in a way of its own. */
const BASE64 = /^[a-z0-9+/]*=*$/i;
const BASE64_URL = /^[a-z0-9+/_-]*=*$/i;

function canonicalBase64(text: string, encoding: 'base64' | 'base64url'): string {
  return Buffer.from(text, 'base64').toString(encoding);
}

/** A JSON Web Token, behind a scheme or not, in one spelling. Signed as a text, it has but one. */
function canonicalToken(text: string): string {
  const at = text.lastIndexOf(' ') + 1;
  const token = text.slice(at);
  if (!JWT.test(token)) return text;
  const parts = token.split('.');
  // Encrypted ones have five, of which the first is signed as a text.
  const from = parts.length === 5 ? 1 : 2;
  const free = parts.slice(from);
  if (!free.every((part) => BASE64_URL.test(part))) return UNIDENTIFIED;
  const once = [...parts.slice(0, from), ...free.map((part) => canonicalBase64(part, 'base64url'))];
  return text.slice(0, at) + once.join('.');
}

/** Three or five parts, of which the first is an object. */
const JWT = /^e(?:y[AJ]|w[0ok])[^.]*(?:\.[^.]*){2}(?:(?:\.[^.]*){2})?$/;
const SCHEME_AND_JWT = /^\S+\s+e(?:y[AJ]|w[0ok])[^.\s]*\./;

/** Bytes that were no UTF-8 came as this: many different ones would be one. */
const REPLACEMENT_CHARACTER = '\ufffd';

function shortenIdentifier(text: string): string {
  const isShort =
    text.length <= IDENTIFIER_MAX_CHARACTERS ||
    // A character takes two places at most: what is longer need not be counted through.
    (text.length <= 2 * IDENTIFIER_MAX_CHARACTERS && [...text].length <= IDENTIFIER_MAX_CHARACTERS);
  return isShort ? text : `sha256:${hash('sha256', text)}`;
}
