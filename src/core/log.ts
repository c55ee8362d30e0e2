/**
 * The log, on standard error, written by the main thread only: JSON lines, or text for people.
 * There is never a key in it.
 */

import pino, { type Logger } from 'pino';
import { formatRecord } from './log-text.ts';

export type Log = Logger;
export type LogFormat = 'json' | 'text';

export function openLog(level: string, format: LogFormat = 'json'): Log {
  const standardError = pino.destination(2);
  // Closed, or full: there is nobody left to tell, and checks go on.
  standardError.on('error', () => {});
  const asText = { write: (line: string) => standardError.write(formatRecord(line)) };
  const destination = format === 'json' ? standardError : asText;
  return pino({ level, base: null, timestamp: pino.stdTimeFunctions.isoTime }, destination);
}
