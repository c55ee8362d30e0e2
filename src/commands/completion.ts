/**
 * `weir completion`: prints a script for a shell. The script knows the commands of this version and
 * calls neither weir nor a server, so a completion is fast and works without a server.
 */

import { annotations, flagName, SETTING_NAMES, type SettingName } from '../config/schema.ts';
import { formatValue } from '../core/describe.ts';
import { StartError } from '../core/errors.ts';
import { EXIT } from '../core/exit.ts';
import { didYouMean } from '../core/nearest.ts';
import { type Command, type CommandEntry, type Option, subcommand } from './command.ts';
import {
  bashScript,
  fishScript,
  type Place,
  type PlaceOption,
  zshScript,
} from './completion-scripts.ts';

const SCRIPTS: Readonly<Record<string, (places: readonly Place[]) => string>> = {
  bash: bashScript,
  zsh: zshScript,
  fish: fishScript,
};
const SHELLS = Object.keys(SCRIPTS);
/** Arguments and values that are paths. */
const PATHS = ['file', 'folder', '<path>'];
const VERSION: PlaceOption = { name: '--version', help: 'print the version', values: undefined };
const HELP: PlaceOption = { name: '--help', help: 'print this help', values: undefined };

/** @param entries all commands, with `serve` and `help`. @param commands all but these two */
export function completionOf(
  entries: Readonly<Record<string, { summary: string }>>,
  commands: Readonly<Record<string, CommandEntry>>,
): Command {
  const print = subcommand({
    usage: '<shell>',
    argumentNames: ['shell'],
    argumentChoices: SHELLS,
    needsServer: false,
    hasJsonOption: false,
    run: async ({ positionals: [shell] }) => {
      if (!Object.hasOwn(SCRIPTS, shell)) throw unknownShellError(shell);
      process.stdout.write(SCRIPTS[shell](await placesOf(entries, commands)));
      return undefined;
    },
  });
  return {
    subcommands: { '': print },
    notes: `
<shell> is one of ${SHELLS.join(', ')}.
The script completes commands, options, and values that are fixed, such as those of --algorithm. It
calls no server. Print it again after an upgrade of weir.

A folder of the examples may not exist yet. zsh needs compinit, and a folder that is in its fpath.
`,
    examples: [
      'source <(weir completion bash)',
      'weir completion bash > ~/.local/share/bash-completion/completions/weir',
      'weir completion zsh > ~/.zfunc/_weir',
      'weir completion fish > ~/.config/fish/completions/weir.fish',
    ],
    exitCodes: [EXIT.OK, EXIT.USAGE],
  };
}

function unknownShellError(shell: string): StartError {
  const accepted = `<shell> must be one of ${SHELLS.join(', ')}`;
  return new StartError(`${accepted}; got ${formatValue(shell)}${didYouMean(shell, SHELLS)}`);
}

async function placesOf(
  entries: Readonly<Record<string, { summary: string }>>,
  commands: Readonly<Record<string, CommandEntry>>,
): Promise<Place[]> {
  const names = Object.entries(entries).map(([name, { summary }]) => ({ name, help: summary }));
  const settings = SETTING_NAMES.filter((name) => annotations(name).secret !== true).map(
    settingOption,
  );
  const all: Place[] = [
    {
      name: '',
      words: names,
      options: [...settings, HELP, VERSION],
    },
    { name: 'serve', words: [], options: [...settings, HELP] },
    { name: 'help', words: names, options: [] },
  ];
  for (const [name, { load }] of Object.entries(commands)) {
    const { subcommands } = await load();
    const isGroup = !Object.hasOwn(subcommands, '');
    if (isGroup) {
      const words = Object.keys(subcommands).map((word) => ({ name: word, help: '' }));
      all.push({ name, words, options: [HELP] });
    }
    for (const [word, { argumentNames, argumentChoices, options }] of Object.entries(subcommands)) {
      all.push({
        name: isGroup ? `${name} ${word}` : name,
        words: PATHS.includes(argumentNames[0])
          ? 'paths'
          : argumentChoices.map((choice) => ({ name: choice, help: '' })),
        options: Object.entries(options).map(optionOf),
      });
    }
  }
  return all;
}

function optionOf([name, { type, value = '', choices, help }]: [string, Option]): PlaceOption {
  const values = PATHS.includes(value) ? 'paths' : (choices ?? []);
  return { name: `--${name}`, help, values: type === 'boolean' ? undefined : values };
}

function settingOption(name: SettingName): PlaceOption {
  const { description, accepts, choices = [] } = annotations(name);
  const isPath = /\bpath\b/.test(accepts);
  return { name: flagName(name), help: description, values: isPath ? 'paths' : choices };
}
