/**
 * `weir top`: the rates of a running server, live. On a terminal it shows them until the user ends
 * it. If the server does not respond, it says so, keeps the last figures, and tries again. Without
 * a terminal it prints tables, and a failure ends it.
 */

import { setTimeout as sleep } from 'node:timers/promises';
import { StartError } from '../core/errors.ts';
import { systemMs } from '../shared-memory/clock.ts';
import { AnalyticsClient, type NamespaceFields, parseNamespaceArgument } from './analytics.ts';
import { CLIENT_EXIT_CODES, type Command, subcommand } from './command.ts';
import { parseDuration, parseInteger } from './options.ts';
import { Screen } from './screen.ts';
import { type ServerClient, ServerError } from './server-client.ts';
import { IdentifierMeter, NamespaceMeter } from './top-rates.ts';
import { type ScreenState, SORTS, screenLines, type View, viewText } from './top-view.ts';

const DEFAULT_INTERVAL = '1s';
const INTERVAL_BOUNDS = { minimumMs: 100, maximumMs: 3_600_000, needsUnit: true } as const;
/** Lines of each list of a printed table. */
const PRINTED_LIST_MAX = 20;

export const top: Command = {
  subcommands: {
    '': subcommand({
      usage: '[<namespace>] [options]',
      argumentNames: ['namespace'],
      isLastArgumentOptional: true,
      hasJsonOption: false,
      options: {
        interval: {
          type: 'string',
          value: '<duration>',
          help: `time between two readings; default: ${DEFAULT_INTERVAL}`,
        },
        count: {
          type: 'string',
          value: '<n>',
          help: 'print n tables and end; default: 1 if standard output is no terminal',
        },
      },
      run: async (call) => {
        const { interval = DEFAULT_INTERVAL, count } = call.values;
        const intervalMs = parseDuration('interval', interval, INTERVAL_BOUNDS);
        const printed = count === undefined ? undefined : parseInteger('count', count, 1);
        const [argument] = call.positionals;
        const namespace = argument === undefined ? undefined : parseNamespaceArgument(argument);
        const stop = new AbortController();
        const source = new ViewSource(call.server(), stop.signal, namespace);
        if (printed === undefined && process.stdout.isTTY) await show(source, intervalMs, stop);
        else await print(source, intervalMs, printed ?? 1);
        return undefined;
      },
    }),
  },
  notes: `
Checks per second since the last reading, and the counts of the current hour. With <namespace>, a
name or an id, also the identifiers that were denied most since then, and those that spent most
tokens. DENIED % is the share of the last reading. Rows are ranked by averages of some seconds, so
that they keep their places. Keys on a terminal: q or Ctrl-C quits, s sorts namespaces by checks, by
denied checks or by name, p pauses. NO_COLOR=1 switches colors off. A count such as 40-45 is between
both. An identifier that ends with … is cut off. The figures are those of one machine.
`,
  examples: ['weir top', 'weir top email.send --interval 5s', 'weir top --count 3 | cat'],
  exitCodes: CLIENT_EXIT_CODES,
};

class ViewSource {
  readonly #url: string;
  readonly #namespaces: NamespaceMeter;
  readonly #identifiers: IdentifierMeter | undefined;

  constructor(server: ServerClient, signal: AbortSignal, namespace: NamespaceFields | undefined) {
    const client = new AnalyticsClient(server, signal);
    this.#url = server.url;
    this.#namespaces = new NamespaceMeter(client, namespace);
    if (namespace !== undefined) this.#identifiers = new IdentifierMeter(client, namespace);
  }

  /** @throws StartError */
  async refresh(): Promise<View> {
    try {
      const namespaces = await this.#namespaces.refresh();
      const identifiers = await this.#identifiers?.refresh();
      return { url: this.#url, atMs: systemMs(), namespaces, identifiers };
    } catch (error) {
      // Another server may be there now, with another time and other figures.
      if (error instanceof ServerError) this.#reset();
      throw error;
    }
  }

  #reset(): void {
    this.#namespaces.reset();
    this.#identifiers?.reset();
  }
}

async function print(source: ViewSource, intervalMs: number, count: number): Promise<void> {
  // Without a reading before it, a table has no rates.
  await source.refresh();
  for (let i = 0; i < count; i++) {
    await sleep(intervalMs);
    const separator = i === 0 ? '' : '\n';
    process.stdout.write(separator + viewText(await source.refresh(), PRINTED_LIST_MAX));
  }
}

async function show(source: ViewSource, intervalMs: number, stop: AbortController): Promise<void> {
  // An invalid key or namespace is an error of the command, and no view.
  let view = await source.refresh();
  const state: ScreenState = { problem: undefined, sort: SORTS[0], isPaused: false };
  const draw = () => screen.draw(screenLines(view, state, screen.size));
  const onKey = (key: string) => {
    if (key === 's') state.sort = SORTS[(SORTS.indexOf(state.sort) + 1) % SORTS.length];
    else if (key === 'p') state.isPaused = !state.isPaused;
    else return;
    draw();
  };
  const screen = new Screen({ onQuit: () => stop.abort(), onResize: draw, onKey });
  const { signal } = stop;
  try {
    while (!signal.aborted) {
      draw();
      await sleep(intervalMs, undefined, { signal });
      if (state.isPaused) continue;
      try {
        const next = await source.refresh();
        // The user may have paused meanwhile.
        if (!state.isPaused) view = next;
        state.problem = undefined;
      } catch (error) {
        if (!(error instanceof StartError)) throw error;
        state.problem = error.message;
      }
    }
  } catch (error) {
    if (!signal.aborted) throw error;
  } finally {
    screen.close();
  }
}
