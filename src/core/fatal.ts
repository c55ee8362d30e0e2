/** Ends a process that cannot continue: with one sentence, and without a native core dump. */

import { closeSync, writeSync } from 'node:fs';

/** Prints one sentence on standard error, in one line even if it quotes a stack. */
export function printError(sentence: string): void {
  writeStandardError(`weir: ${sentence.replace(/\s*\n\s*/g, ' ')}\n`);
}

/** Prints one line of JSON on standard error. */
export function printErrorAsJson(value: object): void {
  writeStandardError(`${JSON.stringify(value)}\n`);
}

function writeStandardError(line: string): void {
  try {
    writeSync(2, line);
  } catch {
    // Standard error is closed or full: there is no other place for the message.
  }
}

/**
 * Ends the process immediately with SIGKILL. `process.exit` would abort with a core dump while an
 * acceptor has an open App, and an unresponsive acceptor cannot close it. The store needs no
 * shutdown: acknowledged changes are durable. Process 1 of a container cannot kill itself this way;
 * it aborts, with standard error closed so that no dump is printed.
 */
export function killProcess(sentence: string): never {
  printError(sentence);
  process.kill(process.pid, 'SIGKILL');
  closeSync(2);
  process.abort();
}
