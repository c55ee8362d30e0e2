/**
 * Finds the rule of a descriptor. On the path of every check: it allocates nothing beyond the texts
 * that a look-up needs. A descriptor has one entry for each level of rules. The rule of an entry is
 * final: no other rule of its level is tried if the next entry matches none.
 *
 * At each level, by default: the rule with the key and the value of the entry, then those of its
 * key with wildcards, of which the one with the most other characters comes first, then the rule
 * with the key alone. Compatible with envoyproxy/ratelimit, a rule goes by one text, `key_value`.
 * That text of the entry is looked up, then it is compared with wildcards in the order of the
 * files, and then the key of the entry is looked up as such a text.
 */

import type { Domain, Rule } from './configuration.ts';
import { joinedText } from './joined-text.ts';
import { literalLength, matchesWildcards, splitWildcards, type WildcardParts } from './wildcard.ts';

/** The rules of a level, prepared for look-ups. */
interface Level {
  find(key: string, value: string): RuleNode | undefined;
}

interface RuleNode {
  rule: Rule;
  /** Undefined for a rule without rules under it. */
  next: Level | undefined;
}

interface Wildcard {
  parts: WildcardParts;
  node: RuleNode;
}

export class DomainMatcher {
  /**
   * The rule that matched each entry of the last descriptor, if `find` returned a rule. It may have
   * rules of earlier descriptors after them.
   */
  readonly path: readonly Rule[];
  readonly #path: Rule[] = [];
  readonly #root: Level | undefined;

  constructor(domain: Domain, isCompatible: boolean) {
    this.path = this.#path;
    this.#root = levelOf(domain.rules, isCompatible ? CompatibleLevel : DefaultLevel);
  }

  /**
   * @param count the entries of the descriptor, at the start of the arrays
   * @returns the rule of the last entry, which may have no limit
   */
  find(keys: readonly string[], values: readonly string[], count: number): Rule | undefined {
    let level = this.#root;
    let rule: Rule | undefined;
    for (let i = 0; i < count; i++) {
      const node: RuleNode | undefined = level?.find(keys[i], values[i]);
      if (node === undefined) return undefined;
      rule = node.rule;
      this.#path[i] = rule;
      level = node.next;
    }
    return rule;
  }
}

function levelOf(
  rules: readonly Rule[],
  Kind: new (nodes: readonly RuleNode[]) => Level,
): Level | undefined {
  if (rules.length === 0) return undefined;
  return new Kind(rules.map((rule) => ({ rule, next: levelOf(rule.rules, Kind) })));
}

/** The rules of a key. */
interface KeyRules {
  exact: Map<string, RuleNode>;
  /** The most specific first. */
  wildcards: Wildcard[];
  bare: RuleNode | undefined;
}

function newKeyRules(): KeyRules {
  return { exact: new Map(), wildcards: [], bare: undefined };
}

class DefaultLevel implements Level {
  readonly #keys = new Map<string, KeyRules>();

  constructor(nodes: readonly RuleNode[]) {
    for (const node of nodes) {
      const { key, value } = node.rule;
      const rules = this.#keys.get(key) ?? newKeyRules();
      this.#keys.set(key, rules);
      if (value === undefined) rules.bare = node;
      else rules.exact.set(value, node);
      if (value?.includes('*')) rules.wildcards.push({ parts: splitWildcards(value), node });
    }
    for (const { wildcards } of this.#keys.values()) {
      wildcards.sort((a, b) => literalLength(b.parts) - literalLength(a.parts));
    }
  }

  find(key: string, value: string): RuleNode | undefined {
    const rules = this.#keys.get(key);
    if (rules === undefined) return undefined;
    return rules.exact.get(value) ?? findWildcard(rules.wildcards, value) ?? rules.bare;
  }
}

class CompatibleLevel implements Level {
  readonly #rules = new Map<string, RuleNode>();
  readonly #wildcards: Wildcard[] = [];

  constructor(nodes: readonly RuleNode[]) {
    for (const node of nodes) {
      const text = joinedText(node.rule.key, node.rule.value);
      this.#rules.set(text, node);
      if (text.includes('*')) this.#wildcards.push({ parts: splitWildcards(text), node });
    }
  }

  find(key: string, value: string): RuleNode | undefined {
    const text = `${key}_${value}`;
    return this.#rules.get(text) ?? findWildcard(this.#wildcards, text) ?? this.#rules.get(key);
  }
}

function findWildcard(wildcards: readonly Wildcard[], text: string): RuleNode | undefined {
  for (let i = 0; i < wildcards.length; i++) {
    if (matchesWildcards(wildcards[i].parts, text)) return wildcards[i].node;
  }
  return undefined;
}
