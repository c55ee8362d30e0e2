/** The list of the commands of `weir`, and the help text of each as the command prints it. */

import { commandHelp } from '../../src/commands/help.ts';
import { COMMANDS, HELP_ENTRIES } from '../../src/commands/run.ts';
import { codeBlock, inlineCode, markdownTable } from './markdown.ts';

export function commandsTable(): string {
  const rows = Object.entries(HELP_ENTRIES).map(([name, { summary }]) => {
    const text = inlineCode(`weir ${name}`);
    return [Object.hasOwn(COMMANDS, name) ? `[${text}](#weir-${name})` : text, summary];
  });
  return markdownTable(['command', 'what it does'], rows);
}

export async function commandSections(): Promise<string> {
  const sections = Object.entries(COMMANDS).map(async ([name, { load }]) => {
    return `### weir ${name}\n\n${codeBlock('text', commandHelp(name, await load()))}`;
  });
  return (await Promise.all(sections)).join('\n\n');
}
