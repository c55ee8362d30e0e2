/** The records of a server's log. */

import type { ServerProcess } from './server.ts';

type LogRecord = Record<string, unknown>;

/** The records so far with this message. Injected faults print lines of their own. */
export function logRecords(server: ServerProcess, message: string): LogRecord[] {
  return server
    .stderr()
    .split('\n')
    .slice(0, -1)
    .filter((line) => line.startsWith('{'))
    .map((line) => JSON.parse(line))
    .filter(({ msg }) => msg === message);
}
