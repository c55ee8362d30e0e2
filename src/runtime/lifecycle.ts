/**
 * How the process of a server ends.
 *
 * A failure is printed as one sentence. Before the first thread starts, it ends the process with a
 * code of `exit.ts`; later it ends the process by SIGKILL, because `process.exit` would abort with
 * a dump while an acceptor has an open App. SIGTERM and SIGINT end the process with 0: at once
 * before the first thread starts, and later by a drain that begins when the start is complete.
 */

import { StartError } from '../core/errors.ts';
import { EXIT, type ExitCode } from '../core/exit.ts';
import { killProcess, printError } from '../core/fatal.ts';

export class Lifecycle {
  /** The exit code of a StartError without one. Until they are loaded, only settings can fail. */
  #exitCode: ExitCode = EXIT.USAGE;
  #hasThreads = false;

  constructor() {
    process.on('uncaughtException', (error) => {
      if (error instanceof StartError) this.#fail(error.message, error.exitCode ?? this.#exitCode);
      this.#fail(`the main thread failed: ${error.stack}`, EXIT.CANNOT_SERVE);
    });
  }

  settingsLoaded(): void {
    this.#exitCode = EXIT.CANNOT_SERVE;
  }

  threadsStarting(): void {
    this.#hasThreads = true;
  }

  /** Resolves at SIGTERM or SIGINT, unless the signal ends the process at once. */
  stopSignal(): Promise<void> {
    return new Promise((resolve) => {
      const onSignal = () => (this.#hasThreads ? resolve() : process.exit(EXIT.OK));
      process.on('SIGTERM', onSignal);
      process.on('SIGINT', onSignal);
    });
  }

  /** Ends the process after a drain. */
  exit(): never {
    process.exit(EXIT.OK);
  }

  #fail(sentence: string, code: ExitCode): never {
    if (this.#hasThreads) killProcess(sentence);
    printError(sentence);
    process.exit(code);
  }
}
