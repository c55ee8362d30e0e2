/**
 * The names that a matched descriptor has: the identifier of its counter, and the path of its
 * metrics as envoyproxy/ratelimit names it. On the path of every check.
 */

import { createHash } from 'node:crypto';
import { IDENTIFIER_MAX_CHARACTERS, RLS_PATH_MAX_CHARACTERS } from '../../core/constants.ts';
import type { Rule } from './configuration.ts';
import { joinedText } from './joined-text.ts';

/** They separate the parts of an identifier, or are wildcards in the identifier of an override. */
const ESCAPED = /[%|=*]/;
const ESCAPED_ALL = /[%|=*]/g;
/** A cut may leave this of an escape. */
const PARTIAL_ESCAPE = /%[\dA-F]?$/;
const HASH_CHARACTERS = 64;
const PREFIX_CHARACTERS = IDENTIFIER_MAX_CHARACTERS - HASH_CHARACTERS - 1;

/**
 * The identifier of the counter of a descriptor: `key=value|key=value`, percent-encoded. The values
 * that share a counter have the pattern of their rule. Compatible with envoyproxy/ratelimit, the
 * entries `a_b`, `c` and `a`, `b_c` are the same text to a rule, and so they share a counter too.
 * An identifier that is too long is cut, and has the hash of the whole at its end.
 * @param path the rule of each entry; undefined for a descriptor that has its own limit
 */
export function identifierOf(
  path: readonly Rule[] | undefined,
  keys: readonly string[],
  values: readonly string[],
  count: number,
): string {
  let text = '';
  for (let i = 0; i < count; i++) {
    const rule = path?.[i];
    const separator = i === 0 ? '' : '|';
    const isOwn = rule === undefined || (rule.key === keys[i] && !rule.sharesCounter);
    const pair = isOwn ? pairText(keys[i], values[i]) : counterPair(rule, keys[i], values[i]);
    text += separator + pair;
  }
  return text.length <= IDENTIFIER_MAX_CHARACTERS ? text : shorten(text);
}

function pairText(key: string, value: string): string {
  return `${encode(key)}=${encode(value)}`;
}

function encode(text: string): string {
  return ESCAPED.test(text) ? text.replaceAll(ESCAPED_ALL, encodeCharacter) : text;
}

function encodeCharacter(character: string): string {
  return `%${character.charCodeAt(0).toString(16).toUpperCase()}`;
}

/** The pair of an entry that shares its counter with others. */
function counterPair(rule: Rule, key: string, value: string): string {
  const { key: ruleKey, sharesCounter } = rule;
  const pattern = joinedText(ruleKey, rule.value);
  // Of another key than that of the rule, the pattern follows the key if it does not begin with it.
  const text = joinedText(key, sharesCounter ? withoutKey(key, pattern) : value);
  const isOfRule = text.startsWith(`${ruleKey}_`);
  const end = isOfRule ? ruleKey.length : text.indexOf('_');
  return pairText(text.slice(0, end), text.slice(end + 1));
}

function shorten(text: string): string {
  // A code point has at most two units, so a longer text need not be counted.
  if (text.length <= 2 * IDENTIFIER_MAX_CHARACTERS) {
    if ([...text].length <= IDENTIFIER_MAX_CHARACTERS) return text;
  }
  const start = [...text.slice(0, 2 * PREFIX_CHARACTERS)].slice(0, PREFIX_CHARACTERS).join('');
  const hash = createHash('sha256').update(text).digest('hex');
  return `${start.replace(PARTIAL_ESCAPE, '')}~${hash}`;
}

/**
 * The path of the metrics of a descriptor under the rules that it matched. It is that of its last
 * rule, unless a rule puts values of the entries into it.
 */
export function metricPathOf(
  domain: string,
  path: readonly Rule[],
  keys: readonly string[],
  values: readonly string[],
  count: number,
): string {
  const last = path[count - 1];
  if (last.hasDetailedMetric) return sanitize(detailedPath(domain, path, keys, values, count));
  let isOwn = true;
  for (let i = 0; i < count; i++) {
    // Only a compatible rule matches another key.
    if (path[i].hasValueInMetric || path[i].key !== keys[i]) isOwn = false;
  }
  if (isOwn) return sanitize(last.path);
  let text = domain;
  for (let i = 0; i < count; i++) {
    const value = metricValue(path[i], keys[i], values[i]);
    text += pathPart(keys[i], value);
  }
  return sanitize(text);
}

/** The path of the metrics of a descriptor with its own limit. */
export function overridePathOf(
  domain: string,
  keys: readonly string[],
  values: readonly string[],
  count: number,
): string {
  let text = domain;
  for (let i = 0; i < count; i++) {
    text += pathPart(keys[i], values[i]);
  }
  return sanitize(text);
}

/** The part of a path for an entry. */
function pathPart(key: string, value: string): string {
  return `.${value === '' ? key : joinedText(key, value)}`;
}

/** The value in the part of a path for an entry; '' for none. */
function metricValue(rule: Rule, key: string, value: string): string {
  const shared = sharedPattern(rule, key, value);
  if (shared !== undefined) return shared;
  const text = joinedText(rule.key, rule.value);
  if (rule.hasValueInMetric || text === joinedText(key, value)) return value;
  return text === key ? '' : withoutKey(key, text);
}

/** The whole path with the values of all entries, or with the patterns of shared counters. */
function detailedPath(
  domain: string,
  path: readonly Rule[],
  keys: readonly string[],
  values: readonly string[],
  count: number,
): string {
  let detailed = domain;
  let shared = domain;
  let isShared = false;
  for (let i = 0; i < count; i++) {
    detailed += `.${joinedText(keys[i], values[i])}`;
    const pattern = sharedPattern(path[i], keys[i], values[i]);
    if (pattern !== undefined) isShared = true;
    shared += pathPart(keys[i], pattern ?? values[i]);
  }
  return isShared ? shared : detailed;
}

/** The pattern of a rule whose wildcard matched an entry that shares a counter with others. */
function sharedPattern(rule: Rule, key: string, value: string): string | undefined {
  if (!rule.sharesCounter) return undefined;
  const text = joinedText(rule.key, rule.value);
  return text === key || text === joinedText(key, value) ? undefined : withoutKey(key, text);
}

/** The text of a rule without the key of an entry, if it begins with that key. */
function withoutKey(key: string, text: string): string {
  return text.startsWith(`${key}_`) ? text.slice(key.length + 1) : text;
}

const UNSAFE = /[:|]|\d\.\d/;
const IPV4 = /\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3}/g;

/** `SanitizeStatName` of envoyproxy/ratelimit: without colons, bars and the dots of IPv4. */
function sanitize(path: string): string {
  const safe = UNSAFE.test(path)
    ? path.replaceAll(/[:|]/g, '_').replaceAll(IPV4, (ip) => ip.replaceAll('.', '_'))
    : path;
  return safe.length <= RLS_PATH_MAX_CHARACTERS ? safe : shortenPath(safe);
}

/** Clients choose values, which must not make metrics and headers long. */
function shortenPath(path: string): string {
  const hash = createHash('sha256').update(path).digest('hex');
  const start = path.slice(0, RLS_PATH_MAX_CHARACTERS - HASH_CHARACTERS - 1).toWellFormed();
  return `${start}~${hash}`;
}
