/** The log: JSON lines on standard error, written by the main thread only. Never a key in it. */

import pino, { type Logger } from 'pino';

export type Log = Logger;

export function openLog(level: string): Log {
  return pino({ level, base: null, timestamp: pino.stdTimeFunctions.isoTime }, pino.destination(2));
}
