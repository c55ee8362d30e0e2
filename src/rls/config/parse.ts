/**
 * Reads the configuration files of envoyproxy/ratelimit, with the fields that weir adds. One fault
 * rejects all files: it is a StartError with the file, the line, the received and the accepted
 * value.
 */

import { ALGORITHM_NAMES, ALGORITHMS } from '../../core/algorithm-fields.ts';
import {
  DURATION_MAX_MS,
  NAMESPACE_ID_PREFIX,
  NAMESPACE_MAX_CHARACTERS,
  NAMESPACES_MAX,
  RLS_CONTENT_TYPE_MAX_CHARACTERS,
  RLS_METADATA_MAX_BYTES,
  RLS_RAW_BODY_MAX_BYTES,
  RLS_REQUESTS_MAX,
  RLS_RULE_DEPTH_MAX,
  RLS_RULES_MAX,
} from '../../core/constants.ts';
import { formatValue, shortName } from '../../core/describe.ts';
import { nearestName } from '../../core/nearest.ts';
import { NO_BURST, RULE, type RuleName } from '../../core/window-rules.ts';
import { UNIT_SECONDS, type UnitName } from '../wire/units.ts';
import type { Domain, RlsConfiguration, Rule, RuleLimit } from './configuration.ts';
import { joinedText } from './joined-text.ts';
import { isTextKey, YamlFile, type YamlNode } from './yaml.ts';

export interface RlsFile {
  /** As error messages show it. */
  name: string;
  text: string;
}

interface ParseOptions {
  /** Whether rules mean exactly what they mean in envoyproxy/ratelimit. */
  isCompatible: boolean;
  /** Whether files of the same domain are one domain. Otherwise they are an error. */
  mergesDomains: boolean;
}

const DOMAIN_FIELDS = ['domain', 'descriptors', 'allow_negative_hits'] as const;
const RULE_FIELDS = [
  'key',
  'value',
  'rate_limit',
  'descriptors',
  'shadow_mode',
  'quota_mode',
  'detailed_metric',
  'value_to_metric',
  'share_threshold',
  'metadata',
] as const;
/** Fields of a limit that an unlimited one has too. */
const UNLIMITED_FIELDS = ['unlimited', 'name', 'replaces', 'requests_per_unit', 'unit'] as const;
/** Those have a meaning only for a limit that denies. */
const OWN_LIMIT_FIELDS = [
  'unit_multiplier',
  'algorithm',
  'burst',
  'raw_body',
  'content_type',
] as const;
const LIMIT_FIELDS = [...UNLIMITED_FIELDS, ...OWN_LIMIT_FIELDS];
const REPLACED_FIELDS = ['name'] as const;
/** In envoyproxy/ratelimit a field of one kind of map is ignored in another. */
const FOREIGN_FIELDS: ReadonlySet<string> = new Set([
  'domain',
  ...RULE_FIELDS,
  ...UNLIMITED_FIELDS,
]);

const UNITS = Object.keys(UNIT_SECONDS) as UnitName[];
const UNIT_NAMES = UNITS.map((unit) => unit.toLowerCase()).join(', ');
const CONTENT_TYPE = /^[\x21-\x7e]([\x20-\x7e]*[\x21-\x7e])?$/;

/** A domain that is being read. */
interface DomainDraft extends Domain {
  rules: Rule[];
  /** Where its first file names it. */
  position: string;
  seen: SeenRules;
}

/** Where each rule of a level is, by what must be different there. */
type SeenRules = Map<string, string>;

/** @param positions gets FILE:LINE of each rule */
export function parseConfiguration(
  files: readonly RlsFile[],
  options: ParseOptions,
  positions?: Map<Rule, string>,
): RlsConfiguration {
  const parser = new ConfigurationParser(options, positions);
  for (const { name, text } of files) parser.addFile(new YamlFile(name, text));
  return parser.configuration();
}

class ConfigurationParser {
  readonly #options: ParseOptions;
  readonly #positions: Map<Rule, string> | undefined;
  readonly #domains = new Map<string, DomainDraft>();
  #rules = 0;

  constructor(options: ParseOptions, positions: Map<Rule, string> | undefined) {
    this.#options = options;
    this.#positions = positions;
  }

  configuration(): RlsConfiguration {
    const domains = [...this.#domains.values()].map(({ name, allowsNegativeHits, rules }) => {
      return { name, allowsNegativeHits, rules };
    });
    return { domains };
  }

  addFile(file: YamlFile): void {
    const { root } = file;
    const fields =
      root === undefined ? new Map() : this.#fields(file, root, 'a file', DOMAIN_FIELDS);
    const name = this.#domainName(file, fields.get('domain'));
    const domain = this.#domain(file, fields.get('domain')!, name);
    const negative = fields.get('allow_negative_hits');
    if (negative !== undefined && file.flag('allow_negative_hits', negative)) {
      domain.allowsNegativeHits = true;
    }
    const descriptors = fields.get('descriptors');
    if (descriptors !== undefined) {
      domain.rules.push(...this.#rulesOf(file, descriptors, name, 1, domain.seen));
    }
  }

  #domainName(file: YamlFile, node: YamlNode | undefined): string {
    const name = node && file.text('domain', node);
    if (name === undefined || name === '') {
      return file.fail(node, '"domain" is required: the domain of the requests; got nothing');
    }
    if (name.startsWith(NAMESPACE_ID_PREFIX) || [...name].length > NAMESPACE_MAX_CHARACTERS) {
      const accepted =
        `a text of 1 to ${NAMESPACE_MAX_CHARACTERS} characters that does not begin with` +
        ` "${NAMESPACE_ID_PREFIX}", as it is the name of a namespace`;
      return file.failValue('domain', node!, accepted);
    }
    return name;
  }

  #domain(file: YamlFile, node: YamlNode, name: string): DomainDraft {
    const known = this.#domains.get(name);
    if (known !== undefined) {
      if (this.#options.mergesDomains) return known;
      const rule = '"domain" must be different in each file, unless domains are merged';
      return file.fail(node, `${rule}; got ${formatValue(name)}, as at ${known.position}`);
    }
    if (this.#domains.size === NAMESPACES_MAX) {
      file.fail(node, `there must be at most ${NAMESPACES_MAX} domains; got one more`);
    }
    const position = file.positionOf(node);
    const domain = { name, allowsNegativeHits: false, rules: [], position, seen: new Map() };
    this.#domains.set(name, domain);
    return domain;
  }

  /** @param seen of the level to which the rules belong */
  #rulesOf(
    file: YamlFile,
    node: YamlNode,
    parentPath: string,
    depth: number,
    seen: SeenRules = new Map(),
  ): Rule[] {
    const items = file.list('descriptors', node);
    if (items.length > 0 && depth > RLS_RULE_DEPTH_MAX) {
      file.fail(node, `rules must be nested at most ${RLS_RULE_DEPTH_MAX} deep; got more`);
    }
    return items.map((item) => this.#rule(file, item, parentPath, depth, seen));
  }

  #rule(file: YamlFile, node: YamlNode, parentPath: string, depth: number, seen: SeenRules): Rule {
    const { isCompatible } = this.#options;
    if (this.#rules === RLS_RULES_MAX) {
      file.fail(node, `there must be at most ${RLS_RULES_MAX} rules in all files; got one more`);
    }
    this.#rules++;
    const fields = this.#fields(file, node, 'an element of "descriptors"', RULE_FIELDS);
    const flag = (name: string) => {
      const value = fields.get(name);
      return value !== undefined && file.flag(name, value);
    };
    const key = textField(file, fields, 'key');
    if (key === undefined || key === '') {
      file.fail(fields.get('key') ?? node, '"key" is required: the key of an entry; got nothing');
    }
    const written = textField(file, fields, 'value');
    const value = isCompatible && written === '' ? undefined : written;
    const name = joinedText(key, value);
    this.#requireNew(file, node, key, value, seen);
    const limitNode = fields.get('rate_limit');
    const sharesCounter = flag('share_threshold');
    const pattern = isCompatible ? name : (value ?? '');
    if (sharesCounter && !pattern.includes('*')) {
      const rule = '"share_threshold" must be left out, unless "value" has a wildcard *';
      file.fail(fields.get('share_threshold'), `${rule}; got ${describeValue(value)}`);
    }
    const path = `${parentPath}.${name}`;
    const metadata = fields.get('metadata');
    const descriptors = fields.get('descriptors');
    const rule: Rule = {
      key,
      value,
      limit:
        limitNode === undefined || file.isNull(limitNode)
          ? undefined
          : this.#limit(file, limitNode),
      rules: descriptors === undefined ? [] : this.#rulesOf(file, descriptors, path, depth + 1),
      isShadow: flag('shadow_mode'),
      isQuota: flag('quota_mode'),
      hasDetailedMetric: flag('detailed_metric'),
      hasValueInMetric: flag('value_to_metric'),
      sharesCounter,
      metadata: metadata && file.json('metadata', metadata, RLS_METADATA_MAX_BYTES),
      path,
    };
    this.#positions?.set(rule, file.positionOf(node));
    return rule;
  }

  #requireNew(
    file: YamlFile,
    node: YamlNode,
    key: string,
    value: string | undefined,
    seen: SeenRules,
  ): void {
    const { isCompatible } = this.#options;
    const id = isCompatible ? joinedText(key, value) : JSON.stringify([key, value]);
    const other = seen.get(id);
    if (other !== undefined) {
      const what = isCompatible
        ? `"key" and "value", joined by _, must be different from those of other rules`
        : '"key" and "value" must be different from those of other rules';
      const got = isCompatible ? formatValue(id) : `${formatValue(key)}, ${describeValue(value)}`;
      file.fail(node, `${what} of the same level; got ${got}, as at ${other}`);
    }
    seen.set(id, file.positionOf(node));
  }

  #limit(file: YamlFile, node: YamlNode): RuleLimit {
    const fields = this.#fields(file, node, '"rate_limit"', LIMIT_FIELDS);
    const unlimited = fields.get('unlimited');
    const isUnlimited = unlimited !== undefined && file.flag('unlimited', unlimited);
    const name = textField(file, fields, 'name') || undefined;
    const common = { name, replaces: this.#replaces(file, fields.get('replaces'), name) };
    if (isUnlimited) {
      this.#requireNoLimit(file, fields);
      return { ...UNLIMITED, ...common };
    }
    const durationMs = readDuration(file, node, fields);
    const requestsPerUnit = this.#requests(file, node, fields);
    return {
      isUnlimited,
      requestsPerUnit,
      durationMs,
      ...readAlgorithm(file, fields, requestsPerUnit),
      ...common,
      ...readBody(file, fields),
    };
  }

  #requireNoLimit(file: YamlFile, fields: Fields): void {
    const unit = textField(file, fields, 'unit');
    const isIgnored = unit === '' || (this.#options.isCompatible && unitOf(unit) === undefined);
    const surplus =
      unit === undefined || isIgnored
        ? OWN_LIMIT_FIELDS.find((field) => fields.has(field))
        : 'unit';
    if (surplus !== undefined) {
      file.fail(fields.get(surplus), `"${surplus}" must be left out of an unlimited "rate_limit"`);
    }
    this.#requests(file, undefined, fields);
  }

  /** @param node of the limit, where it is required */
  #requests(file: YamlFile, node: YamlNode | undefined, fields: Fields): number {
    const given = fields.get('requests_per_unit');
    const requests = given && file.integer('requests_per_unit', given, 0, RLS_REQUESTS_MAX);
    if (requests === undefined && node !== undefined && !this.#options.isCompatible) {
      const accepted = `an integer from 0 to ${RLS_REQUESTS_MAX}; 0 denies every request`;
      file.fail(given ?? node, `"requests_per_unit" is required: ${accepted}; got nothing`);
    }
    return requests ?? 0;
  }

  #replaces(file: YamlFile, node: YamlNode | undefined, own: string | undefined): string[] {
    if (node === undefined) return [];
    return file.list('replaces', node).map((item) => {
      const fields = this.#fields(file, item, 'an element of "replaces"', REPLACED_FIELDS);
      const name = textField(file, fields, 'name');
      if (name === undefined || name === '') {
        return file.fail(
          item,
          'an element of "replaces" must have the "name" of a limit; got nothing',
        );
      }
      if (name === own) {
        const rule = '"replaces" must have names of other limits';
        return file.fail(item, `${rule}; got ${formatValue(name)}, the name of this limit`);
      }
      return name;
    });
  }

  /** @returns the fields by name. @throws StartError for a field that is not known */
  #fields(
    file: YamlFile,
    node: YamlNode,
    what: string,
    known: readonly string[],
  ): Map<string, YamlNode> {
    const fields = new Map<string, YamlNode>();
    for (const { name, key, value } of file.fields(node, what)) {
      if (!isTextKey(key)) {
        file.fail(key, `a key must be a text, such as ${known[0]}; got ${shortName(name)}`);
      }
      if (known.includes(name)) fields.set(name, value);
      else if (!this.#options.isCompatible || !FOREIGN_FIELDS.has(name)) {
        const near = nearestName(name, known);
        const hint = near === undefined ? `the fields are ${known.join(', ')}` : `is it "${near}"?`;
        file.fail(key, `${formatValue(shortName(name))} is not a field of ${what}; ${hint}`);
      }
    }
    return fields;
  }
}

type Fields = ReadonlyMap<string, YamlNode>;

const UNLIMITED = {
  isUnlimited: true,
  requestsPerUnit: 0,
  durationMs: 0,
  algorithm: RULE.fixed,
  burst: NO_BURST,
  rawBody: undefined,
  contentType: undefined,
} as const;

function describeValue(value: string | undefined): string {
  return value === undefined ? 'no value' : formatValue(value);
}

function textField(file: YamlFile, fields: Fields, name: string): string | undefined {
  const node = fields.get(name);
  return node && file.text(name, node);
}

function unitOf(text: string | undefined): UnitName | undefined {
  const upperCase = text?.toUpperCase();
  return UNITS.find((unit) => unit === upperCase);
}

function readDuration(file: YamlFile, limit: YamlNode, fields: Fields): number {
  const node = fields.get('unit');
  const unit = unitOf(textField(file, fields, 'unit'));
  if (node === undefined) {
    return file.fail(limit, `"unit" is required: one of ${UNIT_NAMES}; got nothing`);
  }
  if (unit === undefined) return file.failValue('unit', node, `one of ${UNIT_NAMES}`);
  const unitMs = UNIT_SECONDS[unit] * 1_000;
  const multiplier = fields.get('unit_multiplier');
  if (multiplier === undefined) return unitMs;
  const maximum = Math.floor(DURATION_MAX_MS / unitMs);
  return unitMs * (file.integer('unit_multiplier', multiplier, 1, maximum) ?? 1);
}

function readAlgorithm(
  file: YamlFile,
  fields: Fields,
  requests: number,
): Pick<RuleLimit, 'algorithm' | 'burst'> {
  const node = fields.get('algorithm');
  const text = textField(file, fields, 'algorithm') ?? ('fixed' satisfies RuleName);
  const name = ALGORITHMS.find((known) => known === text);
  if (name === undefined) return file.failValue('algorithm', node!, ALGORITHM_NAMES);
  const burst = fields.get('burst');
  if (burst === undefined) return { algorithm: RULE[name], burst: NO_BURST };
  if (name !== 'gcra') {
    const rule = '"burst" must be left out unless "algorithm" is gcra';
    return file.fail(burst, `${rule}; got it with ${name}`);
  }
  if (requests === 0) {
    return file.fail(burst, '"burst" must be left out where "requests_per_unit" is 0; got it');
  }
  return {
    algorithm: RULE[name],
    burst: file.integer('burst', burst, 1, requests) ?? NO_BURST,
  };
}

function readBody(file: YamlFile, fields: Fields): Pick<RuleLimit, 'rawBody' | 'contentType'> {
  const rawBody = textField(file, fields, 'raw_body');
  if (rawBody !== undefined && Buffer.byteLength(rawBody) > RLS_RAW_BODY_MAX_BYTES) {
    const accepted = `a text of at most ${RLS_RAW_BODY_MAX_BYTES} bytes`;
    file.failValue('raw_body', fields.get('raw_body')!, accepted);
  }
  const contentType = textField(file, fields, 'content_type');
  if (contentType === undefined) return { rawBody, contentType };
  const node = fields.get('content_type')!;
  if (rawBody === undefined) {
    file.fail(node, '"content_type" must be left out without "raw_body", whose type it is; got it');
  }
  const isValid =
    CONTENT_TYPE.test(contentType) && contentType.length <= RLS_CONTENT_TYPE_MAX_CHARACTERS;
  if (!isValid) {
    const accepted =
      `1 to ${RLS_CONTENT_TYPE_MAX_CHARACTERS} characters of printable ASCII, such as` +
      ' application/json';
    file.failValue('content_type', node, accepted);
  }
  return { rawBody, contentType };
}
