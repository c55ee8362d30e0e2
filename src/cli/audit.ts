/** `weir audit`: the audit log of a running server, newest entry first. */

import { isoTime } from '../time.ts';
import { CODES, type Command, part } from './command.ts';
import { integerOf } from './options.ts';
import { cell } from './output.ts';
import type { Server } from './server.ts';

const DEFAULT_LIMIT = 100;
/** Entries of a page of the server. */
const PAGE = 100;

interface Entry {
  at: unknown;
  action: unknown;
  keyId: unknown;
  [field: string]: unknown;
}

const list = part({
  usage: '[--limit <n>]',
  options: {
    limit: { type: 'string', value: '<n>', help: `the newest n; default: ${DEFAULT_LIMIT}` },
  },
  run: async (call) => {
    const limit = integerOf('limit', call.values.limit ?? String(DEFAULT_LIMIT), 1);
    const entries = newest(call.server(), limit);
    await call.printList(entries, ['TIME', 'ACTION', 'KEY ID', 'TARGET'], row);
    return undefined;
  },
});

async function* newest(server: Server, limit: number): AsyncGenerator<object> {
  let left = limit;
  for await (const entry of server.items('audit.list', 'entries', {
    limit: Math.min(left, PAGE),
  })) {
    yield entry;
    if (--left === 0) return;
  }
}

function row({ at, action, keyId, ...target }: Entry): string[] {
  const fields = Object.entries(target).map(([name, value]) => `${name}=${shown(value)}`);
  const time = typeof at === 'number' ? isoTime(at) : shown(at);
  return [time, shown(action), shown(keyId), fields.join(' ')];
}

function shown(value: unknown): string {
  if (value === undefined) return '-';
  return cell(typeof value === 'string' ? value : JSON.stringify(value));
}

export const audit: Command = {
  parts: { list },
  examples: ['weir audit list --limit 20', 'weir audit list --json'],
  codes: CODES,
};
