/**
 * Explains what the rules of a domain do with the descriptors of a request: which rule matches, and
 * why the other rules of each level do not. For people only: it compares each rule of a level.
 */

import { RLS_EXPLAINED_RULES_MAX } from '../../core/constants.ts';
import type { Domain, Rule, RuleLimit } from './configuration.ts';
import { joinedText } from './joined-text.ts';
import { DomainMatcher } from './match.ts';
import { identifierOf, metricPathOf } from './paths.ts';
import { matchesWildcards, splitWildcards } from './wildcard.ts';

export interface Descriptor {
  keys: string[];
  values: string[];
}

interface OtherRule {
  /** The number of the entry with which it was compared, from 1. */
  entry: number;
  rule: Rule;
  /** Why it does not match the entry, or does not apply. */
  reason: string;
}

export interface DescriptorExplanation {
  /** The rules that match the first entries, and no further ones. */
  path: readonly Rule[];
  /** That of the last entry, if each entry has one. */
  rule: Rule | undefined;
  /** Undefined for a descriptor that is not counted. */
  identifier: string | undefined;
  metricPath: string | undefined;
  /** The index of the descriptor whose limit replaces this one. */
  replacedBy: number | undefined;
  /** Those with the key of the entry, or that match it too; at most RLS_EXPLAINED_RULES_MAX. */
  others: readonly OtherRule[];
  /** All rules of the levels that do not apply. */
  otherRules: number;
}

export function explainDescriptors(
  domain: Domain,
  isCompatible: boolean,
  descriptors: readonly Descriptor[],
): DescriptorExplanation[] {
  const matcher = new DomainMatcher(domain, isCompatible);
  const explanations = descriptors.map((descriptor) => {
    return explainDescriptor(domain, isCompatible, matcher, descriptor);
  });
  const limits = explanations.map(({ rule }) => rule?.limit);
  return explanations.map((explanation, index) => {
    return { ...explanation, replacedBy: findReplacement(limits, index) };
  });
}

/** A limit also replaces others if it is replaced itself. */
function findReplacement(
  limits: readonly (RuleLimit | undefined)[],
  index: number,
): number | undefined {
  const name = limits[index]?.name;
  if (name === undefined) return undefined;
  const found = limits.findIndex((limit) => limit?.replaces.includes(name));
  return found < 0 ? undefined : found;
}

function explainDescriptor(
  domain: Domain,
  isCompatible: boolean,
  matcher: DomainMatcher,
  { keys, values }: Descriptor,
): Omit<DescriptorExplanation, 'replacedBy'> {
  const count = keys.length;
  let matched = 0;
  while (matched < count && matcher.find(keys, values, matched + 1) !== undefined) matched++;
  matcher.find(keys, values, matched);
  const path = matcher.path.slice(0, matched);
  const others: OtherRule[] = [];
  let otherRules = 0;
  for (let i = 0; i < Math.min(matched + 1, count); i++) {
    const level = i === 0 ? domain.rules : path[i - 1].rules;
    const reasonOf = isCompatible ? compatibleReason : defaultReason;
    for (const rule of level) {
      if (rule === path[i]) continue;
      otherRules++;
      const reason = reasonOf(rule, keys[i], values[i], path[i]);
      if (reason === undefined || others.length === RLS_EXPLAINED_RULES_MAX) continue;
      others.push({ entry: i + 1, rule, reason });
    }
  }
  const rule = matched === count ? path[count - 1] : undefined;
  const isCounted = rule?.limit?.isUnlimited === false;
  return {
    path,
    rule,
    identifier: isCounted ? identifierOf(path, keys, values, count) : undefined,
    metricPath: isCounted ? metricPathOf(domain.name, path, keys, values, count) : undefined,
    others,
    otherRules,
  };
}

/** @returns undefined for a rule of another key */
function defaultReason(
  rule: Rule,
  key: string,
  value: string,
  matched: Rule | undefined,
): string | undefined {
  if (rule.key !== key) return undefined;
  if (rule.value === undefined) return 'a rule with the value comes first';
  if (!rule.value.includes('*')) return 'value differs';
  if (!matchesWildcards(splitWildcards(rule.value), value)) return 'wildcard does not match';
  return matched?.value === value ? 'the exact value comes first' : 'wildcard is less specific';
}

/** @returns undefined for a rule that has neither the key nor a wildcard that matches */
function compatibleReason(
  rule: Rule,
  key: string,
  value: string,
  matched: Rule | undefined,
): string | undefined {
  const text = joinedText(key, value);
  const ruleText = joinedText(rule.key, rule.value);
  if (ruleText.includes('*') && matchesWildcards(splitWildcards(ruleText), text)) {
    const isExact = matched !== undefined && joinedText(matched.key, matched.value) === text;
    return isExact ? 'the exact value comes first' : 'wildcard is later in the files';
  }
  if (ruleText === key) return 'a rule with the value comes first';
  if (rule.key !== key) return undefined;
  return ruleText.includes('*') ? 'wildcard does not match' : 'value differs';
}
