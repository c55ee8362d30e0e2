/** The scripts of `weir completion` in real shells: a user types a line, with the key Tab. */

import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import { isMissing } from '../../support/programs/program.ts';
import { removeDirectory, temporaryDirectory, waitUntil } from '../../support/server.ts';
import { runWeir } from '../../support/weir-command.ts';
import { PseudoTerminal } from './pseudo-terminal.ts';

const directory = temporaryDirectory();
const inDirectory = (name: string) => join(directory, name);
const received = inDirectory('received');
afterAll(() => removeDirectory(directory));

interface Shell {
  command: readonly string[];
  /** A file of its start. It loads the script, and replaces `weir` by a function. */
  startFile: string;
  start: string;
}

/** The words that the function `weir` gets are the lines of a file, which is renamed when written. */
const FUNCTION = `weir() { printf '%s\\n' "$@" > ${received}.new; mv ${received}.new ${received}; }`;
const SHELLS: Record<string, Shell> = {
  bash: {
    command: ['bash', '--noprofile', '--rcfile', inDirectory('bashrc'), '-i'],
    startFile: 'bashrc',
    start: `PS1='ready> '; source weir.bash; ${FUNCTION}`,
  },
  zsh: {
    command: ['zsh', '-i'],
    startFile: '.zshrc',
    start: `PS1='ready> '; autoload -Uz compinit; compinit -u -D; source weir.zsh; ${FUNCTION}`,
  },
  fish: {
    command: ['fish', '--no-config', '--init-command', `source ${inDirectory('start.fish')}`],
    startFile: 'start.fish',
    start: `source weir.fish
function weir; printf '%s\\n' $argv > ${received}.new; mv ${received}.new ${received}; end
function fish_prompt; echo 'ready> '; end`,
  },
};

/** What a user types, and the words that weir gets. */
const LINES: [typed: string, words: string][] = [
  ['overr\tli\t', 'overrides list'],
  ['check a --alg\tgc\t', 'check a --algorithm gcra'],
  ['check a --algorithm=gc\t', 'check a --algorithm=gcra'],
  ['stats login --by h\t--li\t3', 'stats login --by hour --limit 3'],
  ['gateway ngi\t--sni\t', 'gateway nginx --snippet'],
  ['keys create --perm\tkeys.rev\t', 'keys create --permission keys.revoke'],
  ['overrides import my-ov\t--dry\t', 'overrides import my-overrides.jsonl --dry-run'],
  ['config check my-ov\t', 'config check my-overrides.jsonl'],
  // zsh removes the slash at the end of the line.
  ['rls check --dom\tweb my-ru\t', 'rls check --domain web my-rules'],
  ['migrate --data-dir my-ru\t', 'migrate --data-dir my-rules'],
  ['--log-le\tdeb\t', '--log-level debug'],
  ['serve --log-le\tdeb\t--dec\tin\t', 'serve --log-level debug --decide in-place'],
  ['help names\t', 'help namespaces'],
  ['completion fi\t', 'completion fish'],
  [
    'run --conc\t1 --ident\ta -- my-ov\t',
    'run --concurrency 1 --identifier a -- my-overrides.jsonl',
  ],
];

describe.each(Object.entries(SHELLS))(
  'weir completion %s',
  (name, { command, startFile, start }) => {
    const isAbsent = isMissing(name, '--version') || isMissing('script', '--version');
    let script = '';
    beforeAll(async () => {
      const { code, stdout } = await runWeir('', ['completion', name]);
      expect(code).toBe(0);
      script = stdout;
      writeFileSync(inDirectory(`weir.${name}`), script);
      writeFileSync(inDirectory(startFile), `cd ${directory}; ${start}\n`);
      writeFileSync(inDirectory('my-overrides.jsonl'), '');
      mkdirSync(inDirectory('my-rules'), { recursive: true });
    });

    const open = async () => {
      const env = { PATH: process.env.PATH, HOME: directory, ZDOTDIR: directory, TERM: 'xterm' };
      const terminal = await PseudoTerminal.open(command, { env, rows: 50, columns: 200 });
      onTestFinished(() => terminal.close());
      await waitUntil('the shell is ready', () => terminal.output.includes('ready> '));
      return terminal;
    };
    const close = (terminal: PseudoTerminal) => {
      terminal.type('\u0015exit\n');
      return terminal.end();
    };
    const readWords = () => {
      try {
        return readFileSync(received, 'utf8').trimEnd().split('\n');
      } catch {
        return undefined;
      }
    };

    test.skipIf(isAbsent)('completes commands, options, fixed values and paths', async () => {
      const terminal = await open();
      for (const [typed, words] of LINES) {
        rmSync(received, { force: true });
        terminal.type(`weir ${typed}\n`);
        await waitUntil(`weir is called with ${words}`, () => readWords() !== undefined);
        const got = readWords()!.map((word) => word.replace(/\/$/, ''));
        expect([typed, got]).toEqual([typed, words.split(' ')]);
      }
      await close(terminal);
    });

    test.skipIf(isAbsent)('lists what fits', async () => {
      const terminal = await open();
      terminal.type('weir keys \t\t');
      await waitUntil('the subcommands are listed', () => {
        return ['create', 'list', 'revoke'].every((word) => terminal.output.includes(word));
      });
      await close(terminal);
    });
  },
);
