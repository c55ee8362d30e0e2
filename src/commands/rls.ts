/**
 * `weir rls`: validates the configuration files of the rate limit service, and says which of their
 * rules a descriptor matches. It calls no server.
 */

import { RLS_EXPLAINED_RULES_MAX } from '../core/constants.ts';
import { formatValue } from '../core/describe.ts';
import { formatDuration } from '../core/duration.ts';
import { StartError } from '../core/errors.ts';
import { EXIT } from '../core/exit.ts';
import { printError } from '../core/fatal.ts';
import { NO_BURST, RULE } from '../core/window-rules.ts';
import type { Domain, RlsConfiguration, Rule, RuleLimit } from '../rls/config/configuration.ts';
import {
  type Descriptor,
  type DescriptorExplanation,
  explainDescriptors,
} from '../rls/config/explain.ts';
import { readFolder } from '../rls/config/folder.ts';
import { parseConfiguration } from '../rls/config/parse.ts';
import { findWarnings } from '../rls/config/warnings.ts';
import { unitName, unitOfDuration } from '../rls/wire/units.ts';
import { type Command, subcommand } from './command.ts';
import { required } from './options.ts';
import { escapeUnprintable, formatCell, formatCount, formatTable, quoted } from './output.ts';

const PARSE_OPTIONS = {
  compatible: {
    type: 'boolean',
    help: 'give rules exactly the meaning that they have in envoyproxy/ratelimit',
  },
  'merge-domains': {
    type: 'boolean',
    help: 'accept several files of one domain, and merge them',
  },
} as const;

interface ParseValues {
  compatible?: true;
  'merge-domains'?: true;
}

interface LoadedFolder {
  files: number;
  configuration: RlsConfiguration;
  isCompatible: boolean;
  /** FILE:LINE of each rule. */
  positions: Map<Rule, string>;
}

const validate = subcommand({
  usage: '<folder> [options]',
  argumentNames: ['folder'],
  options: PARSE_OPTIONS,
  needsServer: false,
  run: async (call) => {
    const [folder] = call.positionals;
    const { files, configuration, isCompatible, positions } = load(folder, call.values);
    const domains = configuration.domains.length;
    const rules = positions.size;
    const warnings = findWarnings(configuration, isCompatible, positions);
    if (!call.isJson) {
      for (const warning of warnings) printError(`warning: ${escapeUnprintable(warning)}`);
    }
    call.print({ ok: true, folder, files, domains, rules, warnings }, () => {
      const counts = [
        formatCount(files, 'file'),
        formatCount(domains, 'domain'),
        formatCount(rules, 'rule'),
      ];
      return `${folder} is valid: ${counts.join(', ')}`;
    });
    return undefined;
  },
});

const check = subcommand({
  usage: '<folder> --domain <name> --descriptor <entries>... [options]',
  argumentNames: ['folder'],
  options: {
    domain: { type: 'string', value: '<name>', help: 'domain of the request' },
    descriptor: {
      type: 'string',
      multiple: true,
      value: '<entries>',
      help: 'entries of a descriptor, such as key=value,key=value; may be repeated',
    },
    ...PARSE_OPTIONS,
  },
  needsServer: false,
  run: async (call) => {
    const { values } = call;
    const name = required('domain', values.domain);
    const descriptors = required('descriptor', values.descriptor).map(parseDescriptor);
    const { configuration, isCompatible, positions } = load(call.positionals[0], values);
    const domain = findDomain(configuration, name);
    const explanations = explainDescriptors(domain, isCompatible, descriptors);
    const response = {
      domain: name,
      descriptors: explanations.map((explanation, index) => {
        return toJson(descriptors[index], explanation, positions);
      }),
    };
    call.print(response, () => {
      return explanations
        .map((explanation, i) => describe(i, descriptors[i], explanation, positions))
        .join('\n\n');
    });
    return undefined;
  },
});

function load(folder: string, values: ParseValues): LoadedFolder {
  const { files } = readFolder(folder);
  const isCompatible = values.compatible ?? false;
  const options = { isCompatible, mergesDomains: values['merge-domains'] ?? false };
  const positions = new Map<Rule, string>();
  const configuration = parseConfiguration(files, options, positions);
  return { files: files.length, configuration, isCompatible, positions };
}

function findDomain({ domains }: RlsConfiguration, name: string): Domain {
  const domain = domains.find((known) => known.name === name);
  if (domain !== undefined) return domain;
  const known = domains.map((one) => formatCell(one.name)).join(', ');
  throw new StartError(
    `--domain must be a domain of the files: ${known}; got ${formatValue(name)}, of which every` +
      ' request is allowed',
  );
}

/** The entries of a descriptor. A comma in a value is written as `\,`. */
function parseDescriptor(text: string): Descriptor {
  const descriptor: Descriptor = { keys: [], values: [] };
  for (const entry of text.split(/(?<!\\),/)) {
    const [key, ...rest] = entry.replaceAll('\\,', ',').split('=');
    if (key === '' || rest.length === 0) {
      throw new StartError(
        `--descriptor must be entries such as key=value,key=value; got ${formatValue(text)}`,
      );
    }
    descriptor.keys.push(key);
    descriptor.values.push(rest.join('='));
  }
  return descriptor;
}

function toJson(
  { keys, values }: Descriptor,
  explanation: DescriptorExplanation,
  positions: ReadonlyMap<Rule, string>,
): object {
  const { rule, identifier, metricPath, replacedBy, others, otherRules } = explanation;
  const place = (which: Rule) => ({ path: which.path, position: positions.get(which) });
  return {
    entries: keys.map((key, i) => ({ key, value: values[i] })),
    matchedEntries: explanation.path.length,
    rule: rule && place(rule),
    limit: rule?.limit && {
      ...limitFields(rule.limit),
      shadow: rule.isShadow,
      quota: rule.isQuota,
    },
    identifier,
    metricPath,
    replacedBy: replacedBy === undefined ? undefined : replacedBy + 1,
    others: others.map(({ entry, rule: other, reason }) => ({ entry, ...place(other), reason })),
    otherRules,
  };
}

function limitFields({ isUnlimited, name, replaces, ...limit }: RuleLimit): object {
  if (isUnlimited) return { unlimited: true, name, replaces };
  const { requestsPerUnit, durationMs: duration, algorithm, burst } = limit;
  return {
    requestsPerUnit,
    duration,
    algorithm: algorithmName(algorithm),
    burst: burst === NO_BURST ? undefined : burst,
    name,
    replaces,
  };
}

function algorithmName(number: RuleLimit['algorithm']): string {
  return Object.entries(RULE).find(([, known]) => known === number)![0];
}

/** The explanation as text: a paragraph, and a table of other rules. */
function describe(
  index: number,
  { keys, values }: Descriptor,
  explanation: DescriptorExplanation,
  positions: ReadonlyMap<Rule, string>,
): string {
  const { identifier, metricPath, others, otherRules } = explanation;
  const entries = keys.map((key, i) => escapeUnprintable(`${key}=${values[i]}`)).join(', ');
  const lines = [`Descriptor ${index + 1}: ${entries}`, ...outcome(explanation, keys, positions)];
  if (identifier !== undefined) lines.push(`Identifier: ${escapeUnprintable(identifier)}`);
  if (metricPath !== undefined) lines.push(`Metrics: ${escapeUnprintable(metricPath)}`);
  const text = lines.join('\n');
  if (others.length === 0) {
    return otherRules === 0 ? text : `${text}\nOther rules: ${otherRules}, all of other keys`;
  }
  const rows = others.map(({ entry, rule, reason }) => {
    return [String(entry), formatCell(rule.path), positions.get(rule) ?? '', reason];
  });
  const header = ['ENTRY', 'RULE', 'POSITION', 'WHY IT DOES NOT APPLY'];
  const which = others.length === RLS_EXPLAINED_RULES_MAX ? `The first ${others.length}` : 'Those';
  const title = `Other rules: ${otherRules}. ${which} that have the key or match too:`;
  return `${text}\n${title}\n${formatTable(header, rows).trimEnd()}`;
}

function outcome(
  { path, rule, replacedBy }: DescriptorExplanation,
  keys: readonly string[],
  positions: ReadonlyMap<Rule, string>,
): string[] {
  const place = (which: Rule) => `${quoted(which.path)} (${positions.get(which)})`;
  const free = 'The descriptor is allowed, and not counted.';
  if (rule === undefined) {
    const last = path.at(-1);
    const entry = `entry ${path.length + 1} of ${keys.length}`;
    if (last === undefined) return [`No rule matches ${entry}. ${free}`];
    const reason =
      last.rules.length === 0 ? 'has no rules under it' : 'has none that matches under it';
    return [`No rule matches ${entry}: the rule ${place(last)} ${reason}. ${free}`];
  }
  const matches = `Rule: ${place(rule)}`;
  const { limit } = rule;
  if (limit === undefined) return [matches, `Limit: none. ${free}`];
  const lines = [matches, `Limit: ${describeLimit(rule, limit)}`];
  if (limit.replaces.length > 0) {
    lines.push(`Replaces the limits with the names ${limit.replaces.map(quoted).join(', ')}.`);
  }
  if (replacedBy !== undefined) {
    lines.push(`The limit of descriptor ${replacedBy + 1} replaces this one. ${free}`);
  }
  return lines;
}

function describeLimit({ isShadow, isQuota }: Rule, limit: RuleLimit): string {
  const notes = [
    ...(limit.name === undefined ? [] : [`name ${quoted(limit.name)}`]),
    ...(isShadow ? ['shadow mode: never denied'] : []),
    ...(isQuota ? ['quota mode: denied only together with all other quotas'] : []),
  ];
  return [describeNumbers(limit), ...notes].join('; ');
}

function describeNumbers({ isUnlimited, algorithm, ...limit }: RuleLimit): string {
  if (isUnlimited) return 'unlimited: allowed, and not counted';
  const { requestsPerUnit, durationMs, burst } = limit;
  const unit = unitName(unitOfDuration(durationMs) ?? 0)?.toLowerCase();
  const time = unit === undefined ? `in ${formatDuration(durationMs)}` : `per ${unit}`;
  const amount = `${formatCount(requestsPerUnit, 'request')} ${time}`;
  if (algorithm !== RULE.gcra) return `${amount}, ${algorithmName(algorithm)} window`;
  return burst === NO_BURST ? `${amount}, gcra` : `${amount}, gcra with a burst of ${burst}`;
}

export const rls: Command = {
  subcommands: { validate, check },
  notes: `
<folder> has the configuration files of the rate limit service, in the YAML of envoyproxy/ratelimit.
Every file in it and in its subfolders is read, unless its name begins with a dot.

validate prints the first error that would reject the files, and warnings, which do not change the
exit code. check prints which rule each descriptor of a request matches and why the other rules do
not, its limit, and the identifier of its counter, for overrides, inspect, explain and reset. It
counts nothing. In a value write a comma as \\,.
`,
  examples: [
    'weir rls validate /etc/weir/rls',
    'weir rls check /etc/weir/rls --domain web --descriptor path=/login,ip=203.0.113.7',
    'weir rls check rls --domain web --descriptor user=7 --descriptor plan=free --compatible',
  ],
  exitCodes: [EXIT.OK, EXIT.USAGE],
};
