/** Configurations of the rate limit service for tests, and what the parser says about them. */

import type { RlsConfiguration, Rule } from '../../src/rls/config/configuration.ts';
import { parseConfiguration } from '../../src/rls/config/parse.ts';

/** The tree of descriptors with which the cases of matching are stated. */
export const TREE = `
domain: d
descriptors:
  - key: a
    value: 1
    descriptors:
      - key: b
        rate_limit: { unit: second, requests_per_unit: 5 }
      - key: b
        value: 2
        rate_limit: { unit: second, requests_per_unit: 10 }
  - key: c
    rate_limit: { unit: minute, requests_per_unit: 20 }
  - key: c
    value: 2
    rate_limit: { unit: minute, requests_per_unit: 30 }
  - key: c
    value: 3
  - key: e
    value: 5
    rate_limit: { unit: day, requests_per_unit: 15 }
    descriptors:
      - key: f
        value: 5
        rate_limit: { unit: day, requests_per_unit: 25 }
  - key: u
    rate_limit: { unlimited: true }
  - key: g
    detailed_metric: true
    rate_limit: { unit: minute, requests_per_unit: 70 }
`;

interface Modes {
  isCompatible?: boolean;
  mergesDomains?: boolean;
}

/** @param texts of the files `0.yaml`, `1.yaml` and so on */
export function parseTexts(texts: readonly string[], modes: Modes = {}): RlsConfiguration {
  const files = texts.map((text, i) => ({ name: `${i}.yaml`, text }));
  return parseConfiguration(files, { isCompatible: false, mergesDomains: false, ...modes });
}

/** The rules of the only domain. */
export function parseRules(text: string, modes: Modes = {}): readonly Rule[] {
  return parseTexts([text], modes).domains[0].rules;
}

/** A file of the domain `d` with one rule. @param fields lines of the rule */
export function ruleFile(...fields: string[]): string {
  return ['domain: d', 'descriptors:', '  - key: k', ...fields.map((line) => `    ${line}`)].join(
    '\n',
  );
}

/** The same with one limit. @param fields lines of the limit */
export function limitFile(...fields: string[]): string {
  return ruleFile('rate_limit:', ...fields.map((line) => `  ${line}`));
}
