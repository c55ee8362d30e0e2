/**
 * The terminal while a command shows a live view: the alternate screen, without a cursor, and with
 * lines that do not wrap. The terminal is restored by `close`, and at any other end of the process
 * except SIGKILL. The keys q and Ctrl-C, SIGINT, SIGTERM and SIGHUP ask the command to end; the
 * command gets every other key. Colors follow https://no-color.org.
 */

import type { ReadStream, WriteStream } from 'node:tty';

const ENTER = '\u001b[?1049h\u001b[?25l\u001b[?7l';
const LEAVE = '\u001b[?7h\u001b[?25h\u001b[?1049l';
const HOME = '\u001b[H';
const CLEAR_LINE_END = '\u001b[K';
const CLEAR_BELOW = '\u001b[J';

const QUIT_SIGNALS = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const;
/** In raw mode, Ctrl-C is a character. */
const QUIT_KEYS = ['q', 'Q', '\u0003'];

/** A terminal that does not know its size. */
const DEFAULT_SIZE = { rows: 24, columns: 80 };

interface ScreenEvents {
  /** The user or a signal asks the command to end. */
  onQuit: () => void;
  onResize: () => void;
  /** Another key, or a part of the sequence of one. */
  onKey: (key: string) => void;
}

export class Screen {
  readonly #input: ReadStream;
  readonly #output: WriteStream;
  readonly #events: ScreenEvents;
  #isOpen = true;

  /** @param output a terminal; without one as the input, only signals end the view */
  constructor(events: ScreenEvents, input = process.stdin, output = process.stdout) {
    this.#events = events;
    this.#input = input;
    this.#output = output;
    for (const signal of QUIT_SIGNALS) process.on(signal, events.onQuit);
    process.on('exit', this.#restore);
    output.on('resize', events.onResize);
    output.write(ENTER);
    if (!input.isTTY) return;
    input.setRawMode(true);
    input.on('data', this.#onKeys).on('end', events.onQuit).on('error', events.onQuit);
  }

  get size(): { rows: number; columns: number; hasColor: boolean } {
    const { rows, columns } = this.#output;
    const { NO_COLOR = '', TERM = 'dumb' } = process.env;
    return {
      rows: rows || DEFAULT_SIZE.rows,
      columns: columns || DEFAULT_SIZE.columns,
      hasColor: NO_COLOR === '' && TERM !== 'dumb',
    };
  }

  /** @param lines as many as fit, and none wider than the screen */
  draw(lines: readonly string[]): void {
    const text = lines.map((line) => line + CLEAR_LINE_END).join('\r\n');
    this.#output.write(HOME + text + CLEAR_BELOW);
  }

  close(): void {
    this.#restore();
    for (const signal of QUIT_SIGNALS) process.off(signal, this.#events.onQuit);
    process.off('exit', this.#restore);
    this.#output.off('resize', this.#events.onResize);
    // A stream that is read keeps the process alive.
    this.#input.off('data', this.#onKeys).pause();
  }

  readonly #onKeys = (keys: Buffer): void => {
    const typed = keys.toString('latin1');
    if (QUIT_KEYS.some((key) => typed.includes(key))) this.#events.onQuit();
    else for (const key of typed) this.#events.onKey(key);
  };

  readonly #restore = (): void => {
    if (!this.#isOpen) return;
    this.#isOpen = false;
    if (this.#input.isTTY) this.#input.setRawMode(false);
    this.#output.write(LEAVE);
  };
}
