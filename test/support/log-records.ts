/** The log of a server, as records. */

import type { ServerProcess } from './server.ts';

export type LogRecord = Record<string, unknown>;

/** Of the records so far, those with a message. */
export function logRecords(server: ServerProcess, message: string): LogRecord[] {
  return server
    .stderr()
    .split('\n')
    .slice(0, -1)
    .map((line) => JSON.parse(line))
    .filter(({ msg }) => msg === message);
}
