/**
 * Finds what is valid in a configuration, but probably not meant: rules that never match, and
 * fields without an effect. For people only: it compares the wildcards of a level with each other.
 */

import { RLS_COMPARED_WILDCARDS_MAX } from '../../core/constants.ts';
import { formatValue } from '../../core/describe.ts';
import type { Domain, RlsConfiguration, Rule } from './configuration.ts';
import { joinedText } from './joined-text.ts';
import { literalLength, matchesWildcards, splitWildcards } from './wildcard.ts';

/** A character that a `*` of one pattern becomes, to compare the pattern with another one. */
const ANY_TEXT = '\0';

/** @param positions FILE:LINE of each rule. @returns one sentence for each warning */
export function findWarnings(
  { domains }: RlsConfiguration,
  isCompatible: boolean,
  positions: ReadonlyMap<Rule, string>,
): string[] {
  const warnings: string[] = [];
  const warn = (rule: Rule, message: string) => {
    warnings.push(`${positions.get(rule)}: ${message}`);
  };
  for (const domain of domains) {
    const names = namesIn(domain.rules);
    const search = (rules: readonly Rule[]) => {
      for (const rule of rules) {
        for (const message of faultsOf(rule, isCompatible, domain, names)) warn(rule, message);
      }
      const tests = isCompatible ? [rules] : [...byKey(rules).values()];
      for (const compared of tests) compareWildcards(compared, isCompatible, positions, warn);
      for (const rule of rules) search(rule.rules);
    };
    search(domain.rules);
  }
  return warnings;
}

function namesIn(rules: readonly Rule[], names = new Set<string>()): ReadonlySet<string> {
  for (const { limit, rules: next } of rules) {
    if (limit?.name !== undefined) names.add(limit.name);
    namesIn(next, names);
  }
  return names;
}

function byKey(rules: readonly Rule[]): Map<string, Rule[]> {
  const groups = new Map<string, Rule[]>();
  for (const rule of rules) {
    const group = groups.get(rule.key);
    if (group === undefined) groups.set(rule.key, [rule]);
    else group.push(rule);
  }
  return groups;
}

function* faultsOf(
  rule: Rule,
  isCompatible: boolean,
  domain: Domain,
  names: ReadonlySet<string>,
): Generator<string> {
  if (!isCompatible && rule.value === '') {
    yield '"value" is empty and matches only entries with an empty value; leave it out for all';
  }
  if (!isCompatible && rule.key.includes('*')) {
    yield `the * in "key" ${formatValue(rule.key)} is no wildcard; only "value" may have one`;
  }
  if (rule.limit === undefined) {
    const fields = {
      shadow_mode: rule.isShadow,
      quota_mode: rule.isQuota,
      detailed_metric: rule.hasDetailedMetric,
      metadata: rule.metadata !== undefined,
    };
    for (const [field, isSet] of Object.entries(fields)) {
      if (isSet) yield `"${field}" has no effect without "rate_limit"`;
    }
  }
  for (const name of rule.limit?.replaces ?? []) {
    if (names.has(name)) continue;
    const where = `no limit of the domain ${formatValue(domain.name)}`;
    yield `"replaces" has the name ${formatValue(name)}, which ${where} has`;
  }
}

/** Warns of rules that never match, and of those that match only where an earlier one does not. */
function compareWildcards(
  rules: readonly Rule[],
  isCompatible: boolean,
  positions: ReadonlyMap<Rule, string>,
  warn: (rule: Rule, message: string) => void,
): void {
  const textOf = ({ key, value }: Rule) => (isCompatible ? joinedText(key, value) : (value ?? ''));
  const wildcards = rules
    .filter((rule) => textOf(rule).includes('*'))
    .map((rule) => ({ rule, text: textOf(rule), parts: splitWildcards(textOf(rule)) }));
  if (wildcards.length > RLS_COMPARED_WILDCARDS_MAX) return;
  // In the order in which they are compared with an entry.
  if (!isCompatible) wildcards.sort((a, b) => literalLength(b.parts) - literalLength(a.parts));
  for (const [index, { rule, text, parts }] of wildcards.entries()) {
    const before = wildcards.slice(0, index);
    const example = text.replaceAll('*', ANY_TEXT);
    const covering = before.find((other) => matchesWildcards(other.parts, example));
    if (covering !== undefined) {
      const where = `${formatValue(covering.text)} at ${positions.get(covering.rule)}`;
      warn(rule, `${formatValue(text)} never matches, because ${where} matches all of it before`);
      continue;
    }
    const other = isCompatible && before.find((other) => mayOverlap(other.parts, parts));
    if (other) {
      const where = `${formatValue(other.text)} at ${positions.get(other.rule)}`;
      const both = `what ${formatValue(text)} and ${where} both match`;
      warn(rule, `the order of the files decides: ${both} has the rule that comes first`);
    }
  }
  for (const rule of rules) {
    if (rule.value !== undefined || textOf(rule).includes('*')) continue;
    const example = isCompatible ? `${rule.key}_${ANY_TEXT}` : ANY_TEXT;
    const covering = wildcards.find(({ parts }) => matchesWildcards(parts, example));
    if (covering === undefined) continue;
    const where = `${formatValue(covering.text)} at ${positions.get(covering.rule)}`;
    warn(rule, `the rule without a value never matches, because ${where} matches all values`);
  }
}

/** Whether the starts and the ends of two patterns fit one text. */
function mayOverlap(one: readonly string[], other: readonly string[]): boolean {
  const [start, otherStart] = [one[0], other[0]];
  const [end, otherEnd] = [one[one.length - 1], other[other.length - 1]];
  return (
    (start.startsWith(otherStart) || otherStart.startsWith(start)) &&
    (end.endsWith(otherEnd) || otherEnd.endsWith(end))
  );
}
