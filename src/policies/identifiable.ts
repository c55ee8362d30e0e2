/**
 * Which identifiers the requests of a policy can have. An override of any other identifier would
 * never apply. The reader of requests decides: a text is given to it as the parts of a request, and
 * must come back unchanged. Off the path of a check.
 */

import { formatValue } from '../core/describe.ts';
import { ApiError } from '../core/errors.ts';
import {
  formatBlock,
  formatNetwork,
  isIpv4Network,
  isSingleAddress,
  parseAddress,
  parseNetwork,
} from '../core/ip-network.ts';
import { IdentifierReader, type RequestAttributes, UNIDENTIFIED } from './identifier.ts';
import { isAddressPart, type Part, readPart } from './identity-part.ts';
import { gatewaysOf, type Policy } from './policy.ts';

/** In place of an identifier that is too long. */
const DIGEST = /^sha256:[0-9a-f]{64}$/;
/** A character that no address and no network has, apart from the star of a pattern. */
const NOT_OF_ADDRESS = /[^0-9a-f.:/*]/;
/** Of proxies behind the one that sees the client. */
const ANY_ADDRESS = '192.0.2.1';
const EXAMPLE = '2001:db8::1';

/**
 * The identifier of a request whose parts have the values in a text.
 * @returns the text itself if a request can have it; undefined if the text has no such values
 */
export function identifierLike(policy: Policy, text: string): string | undefined {
  const parts = partsOf(policy);
  if (text === UNIDENTIFIED) return text;
  if (DIGEST.test(text) && !hasOnlyAddress(parts)) return text;
  const values = parts.length === 1 ? [text] : text.split('|').map(unescapePart);
  if (values.length !== parts.length) return undefined;
  const request = requestWith(policy, parts, values);
  const identifiers = gatewaysOf(policy).map((gateway) => {
    return new IdentifierReader(policy, gateway).read(request) ?? UNIDENTIFIED;
  });
  if (identifiers.includes(text)) return text;
  return identifiers.find((identifier) => identifier !== UNIDENTIFIED);
}

/**
 * @param isCidr whether the identifier is a block, in canonical form, and not a text or a pattern
 * @throws ApiError if an override of the identifier could not apply to any request of the policy
 */
export function requireIdentifiable(policy: Policy, identifier: string, isCidr: boolean): void {
  const parts = partsOf(policy);
  if (isCidr) requireReachableBlock(policy, identifier);
  else if (!identifier.includes('*')) requireReachableText(policy, identifier);
  else if (hasOnlyAddress(parts) && NOT_OF_ADDRESS.test(identifier)) {
    const lower = identifier.toLowerCase();
    const instead = NOT_OF_ADDRESS.test(lower) ? addressExamples(policy) : formatValue(lower);
    throw unreachable(policy, `an identifier like ${formatValue(identifier)}`, `give ${instead}`);
  }
}

function requireReachableBlock(policy: Policy, text: string): void {
  const block = `an identifier inside of the CIDR block ${formatValue(text)}`;
  if (!hasOnlyAddress(partsOf(policy))) {
    throw unreachable(policy, block, 'give an identifier or a pattern, without "cidr"');
  }
  const network = parseNetwork(text)!;
  const { ipv6Prefix: prefix } = policy;
  if (isIpv4Network(network) || network.prefix <= prefix) return;
  throw unreachable(policy, block, `give ${formatValue(formatBlock({ ...network, prefix }))}`);
}

/** @throws ApiError (400) if no request of the policy has this identifier */
export function requireReachableText(policy: Policy, text: string): void {
  const identifier = identifierLike(policy, text);
  if (identifier === text) return;
  const what = `the identifier ${formatValue(text)}`;
  if (identifier !== undefined) {
    throw unreachable(policy, what, `give ${JSON.stringify(identifier)}`);
  }
  if (!hasOnlyAddress(partsOf(policy))) {
    const parts = policy.identify.join(' | ');
    throw unreachable(policy, what, `give the values of ${parts}, or a pattern of them`);
  }
  // Not that of one client, which would have had an identifier.
  const network = parseNetwork(text);
  const instead =
    network === undefined
      ? `give ${addressExamples(policy)}`
      : `for each address inside of it, set ${formatValue(formatBlock(network))} with "cidr"`;
  throw unreachable(policy, what, instead);
}

function addressExamples({ ipv6Prefix: prefix }: Policy): string {
  const network = formatNetwork({ ...parseAddress(EXAMPLE)!, prefix });
  return `an address such as "203.0.113.7" or ${formatValue(network)}`;
}

function unreachable({ namespace, identify }: Policy, what: string, fix: string): ApiError {
  const by = identify.join(' and ');
  const reason = `the policy for the namespace ${formatValue(namespace)} identifies clients by`;
  return new ApiError('BAD_REQUEST', `no request has ${what}: ${reason} ${by}; ${fix}`, {
    location: 'body.identifier',
    fix,
  });
}

function partsOf({ identify }: Policy): Part[] {
  return identify.map((text) => readPart(text)!);
}

function hasOnlyAddress(parts: readonly Part[]): boolean {
  return parts.length === 1 && isAddressPart(parts[0]);
}

function unescapePart(text: string): string {
  return text.replaceAll('%7C', '|').replaceAll('%25', '%');
}

/** A request whose parts have these values. */
function requestWith(
  policy: Policy,
  parts: readonly Part[],
  values: readonly string[],
): RequestAttributes {
  const headers = new Map<string, string>();
  const cookies: string[] = [];
  let method = '';
  let path = '';
  for (const [i, part] of parts.entries()) {
    const value = values[i];
    if (part.by === 'method') method = value;
    else if (part.by === 'path') path = value;
    else if (part.by === 'cookie') cookies.push(`${part.name}=${encodeURIComponent(value)}`);
    else if (part.by === 'ip') {
      const proxies = new Array<string>(policy.trustedHops - 1).fill(ANY_ADDRESS);
      headers.set('x-forwarded-for', [addressIn(value, policy), ...proxies].join());
    } else if (part.by === 'ip:header' && !headers.has(part.name)) {
      headers.set(part.name, addressIn(value, policy));
    } else if (part.by === 'header') headers.set(part.name, value.trim());
  }
  headers.set('x-forwarded-method', method);
  headers.set('x-forwarded-uri', path);
  if (cookies.length > 0 && !headers.has('cookie')) headers.set('cookie', cookies.join('; '));
  return {
    method,
    pathSuffix: path,
    header: (name) => headers.get(name) ?? '',
    headerCount: (name) => Number(headers.has(name)),
  };
}

/** An address of a network that is part of one client; any other text is returned as it is. */
function addressIn(text: string, { ipv6Prefix }: Policy): string {
  const network = parseNetwork(text);
  const isOfOneClient =
    network !== undefined &&
    (isIpv4Network(network) ? isSingleAddress(network) : network.prefix >= ipv6Prefix);
  return isOfOneClient ? text.split('/', 1)[0] : text;
}
