/** The log: JSON lines on standard error, written by the main thread only. Never a key in it. */

import pino, { type Logger } from 'pino';

export type Log = Logger;

export function openLog(level: string): Log {
  const standardError = pino.destination(2);
  // Closed, or full: there is nobody left to tell, and checks go on.
  standardError.on('error', () => {});
  return pino({ level, base: null, timestamp: pino.stdTimeFunctions.isoTime }, standardError);
}
