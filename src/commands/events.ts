/**
 * `weir events tail`: prints the recent decisions of a running server, and new ones as they come. A
 * record counts the denials of about a second, so a new one is printed when that is over.
 */

import { setTimeout as sleep } from 'node:timers/promises';
import type { ResponseOf } from '../api/operations/documentation.ts';
import { StartError } from '../core/errors.ts';
import { EXIT } from '../core/exit.ts';
import { LIMIT_SOURCES } from '../recent-decisions/reader.ts';
import { isoTime } from '../shared-memory/clock.ts';
import { parseNamespaceArgument } from './analytics.ts';
import { CLIENT_EXIT_CODES, type Command, subcommand } from './command.ts';
import { limitTexts } from './decision-text.ts';
import { parseInteger } from './options.ts';
import { formatCell } from './output.ts';
import { type RequestFields, type ServerClient, ServerError } from './server-client.ts';

const OPERATION = 'analytics.getDecisions';
type DecisionRecord = ResponseOf<typeof OPERATION>['decisions'][number];

const DEFAULT_LINES = 20;
const POLL_MS = 1_000;
/** A record that a poll has found does not change any more at the poll after the next. */
const POLLS_UNTIL_SETTLED = 2;
/** The largest page that the server accepts. */
const PAGE_SIZE = 100;

const tail = subcommand({
  usage: '[options]',
  options: {
    namespace: { type: 'string', value: '<namespace>', help: 'only this one: a name or an id' },
    identifier: { type: 'string', value: '<identifier>', help: 'only this one' },
    decision: {
      type: 'string',
      value: '<decision>',
      choices: ['allowed', 'denied'],
      help: 'only these: allowed or denied',
    },
    source: {
      type: 'string',
      value: '<source>',
      choices: LIMIT_SOURCES,
      help: `only limits from there: ${LIMIT_SOURCES.join(', ')}`,
    },
    override: { type: 'string', value: '<id>', help: 'only decisions by this override' },
    lines: {
      type: 'string',
      value: '<n>',
      help: `records to print at first; default: ${DEFAULT_LINES}`,
    },
    once: { type: 'boolean', help: 'end after these' },
  },
  run: async (call) => {
    const { namespace, lines = String(DEFAULT_LINES), once, identifier, ...more } = call.values;
    const { decision, source, override } = more;
    const fields = {
      ...(namespace === undefined ? {} : parseNamespaceArgument(namespace)),
      ...{ identifier, decision, source, override },
    };
    const count = parseInteger('lines', lines);
    const tail = new Tail(call.server(), fields);
    const print = (records: readonly DecisionRecord[]) => {
      const texts = records.map(call.isJson ? (record) => JSON.stringify(record) : lineOf);
      process.stdout.write(texts.map((text) => `${text}\n`).join(''));
    };
    print(await tail.last(count));
    if (once) return undefined;
    for (;;) {
      await sleep(POLL_MS);
      print(await tail.next());
    }
  },
});

export const events: Command = {
  subcommands: { tail },
  notes: `
Denials, and a sample of the allowed checks. The server keeps those of the last minutes in memory. A
line with x12 stands for 12 denials of an identifier within a second; of the last second, the first
lines may not count all. "left out" counts further denials of the namespace that have no line.
Ctrl-C ends it. If the server does not answer, it tries again.
`,
  examples: [
    'weir events tail',
    'weir events tail --namespace email.send --decision denied',
    'weir events tail --identifier user_1 --once --json',
  ],
  exitCodes: CLIENT_EXIT_CODES,
};

/** Reads records in the order of their time, each once. */
class Tail {
  readonly #server: ServerClient;
  readonly #fields: RequestFields;
  /** Records that may change, with the number of polls that have found them. */
  readonly #pending = new Map<string, number>();
  /** Printed records that a poll may find again. */
  readonly #printed = new Set<string>();
  #start: number | undefined;
  #hasFailed = false;

  constructor(server: ServerClient, fields: RequestFields) {
    this.#server = server;
    this.#fields = fields;
  }

  /** The newest records. @throws StartError */
  async last(count: number): Promise<DecisionRecord[]> {
    const records: DecisionRecord[] = [];
    const fields = { ...this.#fields, limit: PAGE_SIZE };
    let position = 0;
    for await (const item of this.#server.listItems(OPERATION, 'decisions', fields)) {
      // Those of a whole page are older than what is printed next.
      if (position >= Math.max(count, PAGE_SIZE)) break;
      const record = item as DecisionRecord;
      this.#start ??= record.time;
      this.#printed.add(keyOf(record));
      if (position++ < count) records.push(record);
    }
    return records.reverse();
  }

  /** The records that do not change any more. A server that does not answer has none. */
  async next(): Promise<DecisionRecord[]> {
    const found = new Map<string, DecisionRecord>();
    try {
      const fields = { ...this.#fields, start: this.#start, limit: PAGE_SIZE };
      for await (const item of this.#server.listItems(OPERATION, 'decisions', fields)) {
        const record = item as DecisionRecord;
        found.set(keyOf(record), record);
      }
      this.#hasFailed = false;
    } catch (error) {
      if (!isTemporary(error)) throw error;
      if (!this.#hasFailed) process.stderr.write(`weir: ${error.message}; trying again\n`);
      this.#hasFailed = true;
      return [];
    }
    const settled: DecisionRecord[] = [];
    for (const [key, record] of [...found].reverse()) {
      if (this.#printed.has(key)) continue;
      const polls = (this.#pending.get(key) ?? 0) + 1;
      if (polls <= POLLS_UNTIL_SETTLED) {
        this.#pending.set(key, polls);
        continue;
      }
      this.#pending.delete(key);
      this.#printed.add(key);
      settled.push(record);
    }
    this.#forget(found);
    return settled;
  }

  /** Keeps what the next poll may find again. */
  #forget(found: ReadonlyMap<string, DecisionRecord>): void {
    for (const key of this.#printed) if (!found.has(key)) this.#printed.delete(key);
    for (const key of this.#pending.keys()) if (!found.has(key)) this.#pending.delete(key);
    const pending = [...found].filter(([key]) => this.#pending.has(key));
    const times = pending.map(([, { time }]) => time);
    const newest = [...found.values()].map(({ time }) => time);
    if (newest.length > 0) this.#start = Math.min(...times, Math.max(...newest));
  }
}

/** Whether the server may answer later. */
function isTemporary(error: unknown): error is StartError {
  if (error instanceof ServerError) return error.code === 'SERVICE_UNAVAILABLE';
  return error instanceof StartError && error.exitCode === EXIT.NO_ANSWER;
}

/** Ids are those of a run of the server. */
function keyOf({ id, time }: DecisionRecord): string {
  return `${id} ${time}`;
}

function lineOf(record: DecisionRecord): string {
  const { time, decision, count, namespace, identifier, leftOut, shadow } = record;
  const times = count > 1 ? ` x${count}` : '';
  return [
    isoTime(time).padEnd(24),
    `${decision}${times}`.padEnd(11),
    formatCell(namespace.name),
    identifier === undefined ? '(no identifier)' : formatCell(identifier),
    ...limitTexts(record),
    ...(shadow === true ? ['passed: shadow mode'] : []),
    ...(leftOut > 0 ? [`${leftOut} left out`] : []),
  ].join('  ');
}
