/**
 * Follows the steps of a page as a reader would, in a terminal of its own. The terminal has its own
 * network and process namespaces: only the loopback, on which all ports are free. All processes
 * end with it. It requires root. The clock of its Node programs moves to the start of a window where
 * a reader would wait for it.
 */

import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import {
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  renameSync,
  writeFileSync,
} from 'node:fs';
import { dirname, join } from 'node:path';
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';
import {
  cleanEnvironment,
  removeDirectory,
  temporaryDirectory,
  waitUntil,
} from '../../support/server.ts';
import { describeDifference } from './page-output.ts';
import type { PageStep, RunStep } from './page-steps.ts';

const CLOCK = new URL('./page-clock.preload.mjs', import.meta.url).pathname;
const TERMINAL = new URL('./page-terminal.sh', import.meta.url).pathname;
const NAMESPACES = ['--net', '--pid', '--fork', '--kill-child', '--mount-proc'];
const POLL_MS = 50;
/**
 * A command listens when the same socket has listened at so many polls. weir listens for a moment
 * when it starts, to find a port in use, and long before it accepts connections.
 */
const LISTENING_POLLS = 3;
/** Within it a command ends after Ctrl-C. */
const STOP_TIMEOUT_MS = 30_000;
/** Until a new terminal answers. */
const OPEN_TIMEOUT_MS = 60_000;
/**
 * Counts on a page are of windows of a minute. Its section must end before its window does, and 10 s
 * earlier: "retry after 9 s" changes a Content-Length. The longest takes 6 s on a busy machine.
 */
const WINDOW_MS = 60_000;
const SECTION_MS = 55_000;
/** With Redis, whose clock has the true time, the runner waits for a window. */
const REDIS_SECTION_MS = 25_000;

/** Whether this process can make a terminal. @throws in CI, if it cannot */
export function canRunPages(): boolean {
  const { status, stderr } = spawnSync('unshare', [...NAMESPACES, 'ip', 'link', 'set', 'lo', 'up']);
  if (status !== 0 && process.env.CI !== undefined) throw new Error(`unshare: ${stderr}`);
  return status === 0;
}

interface Timeouts {
  /** For a command that ends by itself. */
  runMs: number;
  /** For one that runs until Ctrl-C, until its output or its port is there. */
  startMs: number;
}

interface StartedStep {
  n: number;
  script: string;
}

export class PageRunner {
  readonly #timeouts: Timeouts;
  readonly #blocks = temporaryDirectory();
  readonly #terminal: ChildProcess;
  readonly #answers = new Map<string, (exitCode: number) => void>();
  readonly #started: StartedStep[] = [];
  readonly #clock: string;
  #clockOffsetMs = 0;
  #blockCount = 0;
  #mustBeginWindow = false;

  private constructor(directory: string, timeouts: Timeouts) {
    this.#timeouts = timeouts;
    this.#clock = join(this.#blocks, 'clock');
    mkdirSync(this.#clock);
    this.#writeClock();
    // A terminal shows no progress meter of curl.
    writeFileSync(join(this.#blocks, '.curlrc'), 'no-progress-meter\n');
    this.#terminal = spawn(
      'unshare',
      [...NAMESPACES, 'bash', '--noprofile', '--norc', TERMINAL, this.#blocks],
      { cwd: directory, env: this.#environment(), stdio: ['pipe', 'pipe', 'inherit'] },
    );
    createInterface({ input: this.#terminal.stdout! }).on('line', (line) => {
      const [n, exitCode] = line.split(' ');
      this.#answers.get(n)?.(Number(exitCode));
      this.#answers.delete(n);
    });
  }

  /** @param directory in which the reader begins */
  static async open(
    directory: string,
    timeouts: Timeouts = { runMs: 60_000, startMs: 300_000 },
  ): Promise<PageRunner> {
    const runner = new PageRunner(directory, timeouts);
    await runner.#answer('ready', OPEN_TIMEOUT_MS);
    return runner;
  }

  /** @throws if the step fails, or prints something else than the page shows */
  async follow(step: PageStep): Promise<void> {
    switch (step.kind) {
      case 'section':
        this.#mustBeginWindow = step.printsCounts;
        return;
      case 'write': {
        const path = join(this.#currentDirectory(), step.path);
        mkdirSync(dirname(path), { recursive: true });
        writeFileSync(path, step.text);
        return;
      }
      case 'stop':
        return this.#stop(step.text);
      case 'run':
        if (step.notRun !== undefined) return;
        if (step.untilStopped !== undefined) return this.#start(step);
        if (this.#mustBeginWindow) await this.#beginWindow();
        this.#mustBeginWindow = false;
        return this.#run(step);
    }
  }

  /** @throws if a command still runs: the page does not say how to stop it */
  finish(): void {
    const scripts = this.#started.map(({ script }) => script);
    if (scripts.length > 0) throw new Error(`the page does not stop: ${scripts.join('\n')}`);
  }

  /** Kills all processes of the terminal. */
  close(): void {
    this.#terminal.kill('SIGKILL');
    removeDirectory(this.#blocks);
  }

  async #run({ script, exitCode, output }: RunStep): Promise<void> {
    const n = this.#addBlock(script);
    const code = await this.#answer(String(n), this.#timeouts.runMs, `run ${n}`);
    const printed = this.#read(`${n}.out`);
    const source = /^\. "\$blocks\//;
    const failed = this.#read(`${n}.failed`).split('\n');
    const failures = failed.filter((line) => line !== '' && !source.test(line));
    if (code !== exitCode || failures.length > (exitCode === 0 ? 0 : 1)) {
      const what = `exit code ${code}, expected ${exitCode}; ${failures.join('; ')}`;
      throw new Error(`${what}\n${printed}${this.#describeStarted()}`);
    }
    if (output === undefined) return;
    const difference = describeDifference(output, printed);
    if (difference !== undefined) throw new Error(`${difference}${this.#describeStarted()}`);
  }

  /** What the commands that still run have printed: it may say why another one failed. */
  #describeStarted(): string {
    const texts = this.#started.map(({ n, script }) => `${script}\n${this.#read(`${n}.out`)}`);
    return texts.map((text) => `\n--- still runs: ${text}`).join('');
  }

  async #start({ script, output, untilStopped }: RunStep): Promise<void> {
    const n = this.#addBlock(script);
    await this.#answer(String(n), this.#timeouts.runMs, `start ${n}`);
    this.#started.push({ n, script });
    const port = untilStopped?.port;
    let socket: string | undefined;
    let polls = 0;
    const missing = () => {
      const printed = this.#read(`${n}.out`);
      if (output !== undefined) return describeDifference(output, printed, true);
      if (port === undefined) return undefined;
      const found = this.#listeningSocket(port);
      polls = found === socket ? polls + 1 : 1;
      socket = found;
      if (socket !== undefined && polls >= LISTENING_POLLS) return undefined;
      return `it does not listen on ${port}: ${printed}`;
    };
    for (let ms = 0; ; ms += POLL_MS) {
      const hasEnded = this.#hasEnded(n);
      const reason = missing();
      if (hasEnded) throw new Error(`it ended by itself: ${this.#read(`${n}.out`)}`);
      if (reason === undefined) return;
      if (ms > this.#timeouts.startMs) throw new Error(reason);
      await sleep(POLL_MS);
    }
  }

  async #stop(text: string): Promise<void> {
    const index = this.#started.findLastIndex(({ script }) => script.includes(text));
    if (index < 0) throw new Error(`no command that contains "${text}" runs`);
    const [{ n, script }] = this.#started.splice(index, 1);
    if (this.#hasEnded(n)) throw new Error(`it ended by itself: ${script}`);
    const code = await this.#answer(String(n), STOP_TIMEOUT_MS, `stop ${n}`);
    // A shell whose command is interrupted reports 128 and the number of the signal.
    if (code === 0 || code === 130) return;
    throw new Error(`after Ctrl-C, exit code ${code}: ${script}\n${this.#read(`${n}.out`)}`);
  }

  /** Moves the clock to the start of a window, unless most of this one is left. */
  async #beginWindow(): Promise<void> {
    const restMs = WINDOW_MS - ((Date.now() + this.#clockOffsetMs) % WINDOW_MS);
    if (this.#started.some(({ script }) => script.includes('redis-server'))) {
      if (restMs < REDIS_SECTION_MS) await sleep(restMs + POLL_MS);
      return;
    }
    if (restMs > SECTION_MS) return;
    this.#clockOffsetMs += restMs;
    this.#writeClock();
    await waitUntil('all programs have the new time', () => {
      return readdirSync(this.#clock).every((pid) => {
        // A program that was killed leaves its file.
        const isAlive = existsSync(`/proc/${this.#shellPid()}/root/proc/${pid}`);
        return !isAlive || Number(this.#read(join('clock', pid))) === this.#clockOffsetMs;
      });
    });
  }

  #writeClock(): void {
    const path = join(this.#clock, 'offset');
    writeFileSync(`${path}.new`, String(this.#clockOffsetMs));
    renameSync(`${path}.new`, path);
  }

  /** Writes the block of a step. @returns its number */
  #addBlock(script: string): number {
    const lines = script.split('\n').map((line) => this.#completeLine(line));
    const n = this.#blockCount++;
    writeFileSync(join(this.#blocks, `${n}.sh`), `${lines.join('\n')}\n`);
    return n;
  }

  /** Replaces a command line that ends with `…` by the printed line that it stands for. */
  #completeLine(line: string): string {
    if (!line.endsWith('…')) return line;
    const start = line.slice(0, -1);
    const printed = Array.from({ length: this.#blockCount }, (_, n) => this.#read(`${n}.out`));
    const found = printed.join('\n').split('\n');
    const last = found.findLast((other) => other.startsWith(start));
    if (last === undefined) throw new Error(`no output has a line that begins with ${start}`);
    return last;
  }

  /** Waits for the exit code of a block. @param command for the terminal, if any */
  #answer(n: string, timeoutMs: number, command?: string): Promise<number> {
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => {
        reject(new Error(`timed out after ${timeoutMs} ms: ${this.#read(`${n}.out`)}`));
      }, timeoutMs);
      this.#answers.set(n, (exitCode) => {
        clearTimeout(timer);
        resolve(exitCode);
      });
      if (command !== undefined) this.#terminal.stdin!.write(`${command}\n`);
    });
  }

  #hasEnded(n: number): boolean {
    return existsSync(join(this.#blocks, `${n}.ended`));
  }

  #read(name: string): string {
    const path = join(this.#blocks, name);
    return existsSync(path) ? readFileSync(path, 'utf8') : '';
  }

  /**
   * Asks the kernel, in the namespace of the terminal, by the socket table of its shell.
   * @returns the inode of a socket that listens on the port
   */
  #listeningSocket(port: number): string | undefined {
    const tables = ['tcp', 'tcp6'].map((name) => `/proc/${this.#shellPid()}/net/${name}`);
    const local = `:${port.toString(16).toUpperCase().padStart(4, '0')}`;
    const rows = tables.flatMap((path) => readFileSync(path, 'utf8').split('\n'));
    for (const row of rows) {
      const fields = row.trim().split(/\s+/);
      // The columns: number, local and remote address, state (0A listens), …, and the inode.
      if (fields[1]?.endsWith(local) && fields[3] === '0A') return fields[9];
    }
    return undefined;
  }

  #currentDirectory(): string {
    return readlinkSync(`/proc/${this.#shellPid()}/cwd`);
  }

  /** The shell is the only child of `unshare`. */
  #shellPid(): number {
    const { pid } = this.#terminal;
    return Number(readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8').trim());
  }

  #environment(): NodeJS.ProcessEnv {
    const own = Object.entries(cleanEnvironment()).filter(([name]) => !name.startsWith('npm_'));
    const prefix = join(this.#blocks, 'prefix');
    const path = (process.env.PATH ?? '').split(':').filter((entry) => {
      return !entry.includes('node_modules');
    });
    return {
      ...Object.fromEntries(own),
      PATH: [join(prefix, 'bin'), dirname(process.execPath), ...path].join(':'),
      CURL_HOME: this.#blocks,
      NODE_OPTIONS: `--import ${CLOCK}`,
      PAGE_CLOCK: this.#clock,
      // The first check of a program took 3.2 s on a busy machine. Unkey's client gives up after 5 s.
      CHECK_TIMEOUT_MS: '4500',
      // The namespace has no network: packages come from npm's cache.
      npm_config_offline: 'true',
      // From the cache npm also knows newer versions of itself, and would print that now and then.
      npm_config_update_notifier: 'false',
      npm_config_prefix: prefix,
    } as unknown as NodeJS.ProcessEnv;
  }
}
