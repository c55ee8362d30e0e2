/** The records of a server's log. */

import type { ServerProcess } from './server.ts';

type LogRecord = Record<string, unknown>;

/** The records so far with this message. */
export function logRecords(server: ServerProcess, message: string): LogRecord[] {
  return server
    .stderr()
    .split('\n')
    .slice(0, -1)
    .map((line) => JSON.parse(line))
    .filter(({ msg }) => msg === message);
}
