/** The end of a process that cannot go on: one sentence, and no native dump behind it. */

import { closeSync, writeSync } from 'node:fs';

/** Says one sentence on standard error, in one line even where it quotes a stack. */
export function printError(sentence: string): void {
  writeStandardError(`weir: ${sentence.replace(/\s*\n\s*/g, ' ')}\n`);
}

/** The same as one line of JSON. */
export function printErrorAsJson(value: object): void {
  writeStandardError(`${JSON.stringify(value)}\n`);
}

function writeStandardError(line: string): void {
  try {
    writeSync(2, line);
  } catch {
    // Standard error is gone or full: there is nobody left to tell.
  }
}

/**
 * Ends the process at once, by SIGKILL. `process.exit` would abort with a dump while an acceptor
 * has an open App, and an acceptor that hangs cannot be asked to close it. The store needs no
 * farewell: what was acknowledged is on disk. The first process of a container cannot kill itself
 * so; it aborts, with nowhere to write a dump to.
 */
export function killProcess(sentence: string): never {
  printError(sentence);
  process.kill(process.pid, 'SIGKILL');
  closeSync(2);
  process.abort();
}
