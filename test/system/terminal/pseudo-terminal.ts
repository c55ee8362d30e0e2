/** A command in a real terminal: a pseudo-terminal of `script` (util-linux), which has a size. */

import { type ChildProcess, execFileSync, spawn } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { removeDirectory, temporaryDirectory, waitUntil } from '../../support/server.ts';

interface TerminalOptions {
  env: Record<string, string | undefined>;
  rows: number;
  columns: number;
}

/** The settings of the terminal after the command, and its exit code. */
interface TerminalEnd {
  code: number;
  /** As `stty -a` prints them. */
  settings: string;
}

const quote = (text: string) => `'${text.replaceAll("'", "'\\''")}'`;

export class PseudoTerminal {
  readonly #directory: string;
  readonly #script: ChildProcess;
  readonly #exited: Promise<void>;
  #output = '';

  private constructor(command: readonly string[], { env, rows, columns }: TerminalOptions) {
    this.#directory = temporaryDirectory();
    const file = (name: string) => quote(join(this.#directory, name));
    // The inner shell replaces itself by the command, so its process id is that of the command.
    const inner = `echo $$ > ${file('pid')}; exec ${command.map(quote).join(' ')}`;
    const lines = [
      `stty rows ${rows} cols ${columns}; tty > ${file('tty')}`,
      `sh -c ${quote(inner)}`,
      `echo $? > ${file('code')}; stty -a > ${file('settings')}`,
    ];
    this.#script = spawn('script', ['-q', '-f', '-c', lines.join('\n'), '/dev/null'], {
      env: { ...env, SHELL: '/bin/sh' } as NodeJS.ProcessEnv,
      stdio: ['pipe', 'pipe', 'inherit'],
    });
    this.#script.stdout!.setEncoding('utf8').on('data', (text) => {
      this.#output += text;
    });
    this.#exited = new Promise((resolve) => this.#script.once('close', () => resolve()));
  }

  static async open(command: readonly string[], options: TerminalOptions) {
    const terminal = new PseudoTerminal(command, options);
    await waitUntil('the command starts', () => terminal.#read('pid') !== '');
    return terminal;
  }

  /** All that the command has written so far. */
  get output(): string {
    return this.#output;
  }

  type(keys: string): void {
    this.#script.stdin!.write(keys);
  }

  resize(rows: number, columns: number): void {
    const size = ['rows', String(rows), 'cols', String(columns)];
    execFileSync('stty', ['-F', this.#read('tty'), ...size]);
  }

  kill(signal: NodeJS.Signals): void {
    process.kill(Number(this.#read('pid')), signal);
  }

  /** Waits until the command ends by itself. */
  async end(): Promise<TerminalEnd> {
    await waitUntil('the command ends', () => this.#read('settings').includes('echo'));
    this.#script.stdin!.end();
    await this.#exited;
    return { code: Number(this.#read('code')), settings: this.#read('settings') };
  }

  /** Ends the command too, by SIGHUP, if it still runs. */
  close(): void {
    this.#script.kill('SIGTERM');
    removeDirectory(this.#directory);
  }

  /** An empty text for a file that is not there yet. */
  #read(name: string): string {
    try {
      return readFileSync(join(this.#directory, name), 'utf8').trim();
    } catch {
      return '';
    }
  }
}
