/** The help texts, all with one layout: usage, notes, options, examples, exit codes. */

import { EXIT, exitSection } from '../core/exit.ts';
import type { Command, Option } from './command.ts';
import { formatTable } from './output.ts';

export function commandHelp(
  name: string,
  { subcommands, notes, examples, exitCodes, exitMeanings }: Command,
): string {
  const usages = Object.entries(subcommands).map(([subcommand, { usage }]) => {
    return `  ${['weir', name, subcommand, usage].filter((text) => text !== '').join(' ')}\n`;
  });
  const options = new Map(
    Object.values(subcommands).flatMap((subcommand) => Object.entries(subcommand.options)),
  );
  const common = ['json', 'url', 'timeout', 'help'];
  const order = [...options].toSorted(([a], [b]) => common.indexOf(a) - common.indexOf(b));
  const sections = [
    `Usage:\n${usages.join('')}`,
    ...(notes === undefined ? [] : [`${notes.trim()}\n`]),
    `Options:\n${optionLines(order)}`,
    `Examples:\n${examples.map((line) => `  ${line}\n`).join('')}`,
    exitSection(exitCodes, exitMeanings),
  ];
  return sections.join('\n');
}

function optionLines(options: readonly [string, Option][]): string {
  const flags = options.map(([name, { short, value = '' }]) => {
    return `  ${short === undefined ? '' : `-${short}, `}--${name} ${value}`.trimEnd();
  });
  const width = Math.max(...flags.map((flag) => flag.length));
  return options.map(([, { help }], i) => `${flags[i].padEnd(width)}  ${help}\n`).join('');
}

export function generalHelp(commands: Readonly<Record<string, { summary: string }>>): string {
  const rows = Object.entries(commands).map(([name, { summary }]) => [`  ${name}`, summary]);
  const list = formatTable(['Commands:', ''], rows);
  const usage = 'Usage:\n  weir [serve] [settings]\n  weir <command> [options]\n';
  const more = `weir help <command> prints the options of a command, weir help serve the settings.
The commands call a running server: WEIR_URL is its address, WEIR_KEY is the API key. Without
WEIR_URL they use the address that the server reads from WEIR_HOST, WEIR_PORT and WEIR_CONFIG.
`;
  const examples = `Examples:
  weir serve --port 8080
  weir check user_1 --limit 10 --duration 60s
  weir help overrides
`;
  return [usage, list, more, examples, exitSection([...new Set(Object.values(EXIT))], {})].join(
    '\n',
  );
}
