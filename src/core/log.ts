/**
 * The log, on standard error: JSON lines or text. Only the main thread writes it. It never contains
 * an API key.
 */

import type { Logger } from 'pino';
import { formatRecord } from './log-text.ts';
import { requirePackage } from './packages.ts';

const { pino } = requirePackage('pino');

export type Log = Logger;
export function openLog(level: string, format: 'json' | 'text' = 'json'): Log {
  const standardError = pino.destination(2);
  // If standard error is closed or full, messages are lost, and checks continue.
  standardError.on('error', () => {});
  const asText = { write: (line: string) => standardError.write(formatRecord(line)) };
  const destination = format === 'json' ? standardError : asText;
  return pino({ level, base: null, timestamp: pino.stdTimeFunctions.isoTime }, destination);
}
