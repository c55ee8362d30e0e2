/**
 * The configuration of the rate limit service, as plain data that a message can carry. `parse.ts`
 * reads it from YAML in the format of envoyproxy/ratelimit. `match.ts` finds the rule of a
 * descriptor.
 */

import type { JsonObject } from '../../core/json.ts';
import type { RuleNumber } from '../../core/window-rules.ts';

export interface RlsConfiguration {
  domains: readonly Domain[];
}

export interface Domain {
  /** Also the name of the namespace that has its counters. */
  name: string;
  /** Whether a descriptor may return tokens with `is_negative_hits`. */
  allowsNegativeHits: boolean;
  /** In the order of the files. */
  rules: readonly Rule[];
}

/** An element of `descriptors`. */
export interface Rule {
  key: string;
  /** A text in which `*` is a wildcard; undefined for a rule that matches all values of its key. */
  value: string | undefined;
  limit: RuleLimit | undefined;
  /** Of the next entry of a descriptor. */
  rules: readonly Rule[];
  isShadow: boolean;
  isQuota: boolean;
  /** `detailed_metric`: its metric has the values of the entries. */
  hasDetailedMetric: boolean;
  /** `value_to_metric`: its part of a metric has the value of the entry. */
  hasValueInMetric: boolean;
  /** `share_threshold`: all values that match its wildcard share a counter. */
  sharesCounter: boolean;
  /** Repeated by a response. */
  metadata: JsonObject | undefined;
  /** Its domain, the rules above it, its own key and value, as envoyproxy/ratelimit names it. */
  path: string;
}

export interface RuleLimit {
  /** Unlimited: the descriptor is allowed, and not counted. The numbers below have no meaning. */
  isUnlimited: boolean;
  requestsPerUnit: number;
  /** The unit times its multiplier. */
  durationMs: number;
  algorithm: RuleNumber;
  /** NO_BURST unless GCRA has one. */
  burst: number;
  name: string | undefined;
  /** Names of limits of the same request that do not apply beside this one. */
  replaces: readonly string[];
  /** The body of a denied request, and its content type. */
  rawBody: string | undefined;
  contentType: string | undefined;
}
