/**
 * `weir run`: runs a command while it holds a concurrency lease. The command runs only if the lease
 * is granted; later failures never end it. A renewal or release that fails is one line on standard
 * error. No line shows the lease id: it is not logged where the output of jobs is collected.
 */

import { type ChildProcess, spawn } from 'node:child_process';
import { randomInt } from 'node:crypto';
import { constants } from 'node:os';
import { setTimeout as sleep } from 'node:timers/promises';
import { isatty } from 'node:tty';
import { formatValue } from '../core/describe.ts';
import { formatDuration } from '../core/duration.ts';
import { describeFileError } from '../core/errno.ts';
import { StartError } from '../core/errors.ts';
import { EXIT } from '../core/exit.ts';
import { printError } from '../core/fatal.ts';
import { monotonicMs } from '../shared-memory/clock.ts';
import { CLIENT_EXIT_CODES, type Command, subcommand } from './command.ts';
import { parseTtl, TTL_OPTION } from './hold-options.ts';
import { acquireLease, describeDenial, releaseLease, renewLease } from './leases.ts';
import { parseDuration, parseInteger, required } from './options.ts';
import { type ServerClient, ServerError } from './server-client.ts';

const DEFAULT_TTL = '30s';
const WAIT_BOUNDS = { minimumMs: 1, maximumMs: 86_400_000, needsUnit: true } as const;
/** Time between two requests of a wait, and between two tries of a renewal. */
const RETRY_MS = 1_000;
/** The least number of requests of a wait or of failing renewals, if each is answered at once. */
const TRIES_MIN = 10;
/** One renewal may fail without the end of the lease. */
const RENEWALS_PER_TTL = 3;

/** As shells end where a command cannot be run. */
const EXIT_NOT_FOUND = 127;
const EXIT_NOT_RUNNABLE = 126;
const EXIT_SIGNAL = 128;

const SIGNALS = ['SIGHUP', 'SIGINT', 'SIGQUIT', 'SIGTERM'] as const;
/** A terminal sends these to the command too. A second one could end its clean-up. */
const TERMINAL_SIGNALS: readonly NodeJS.Signals[] = ['SIGINT', 'SIGQUIT'];
const STANDARD_STREAMS = [0, 1, 2] as const;

export const job: Command = {
  subcommands: {
    '': subcommand({
      usage: '--concurrency <n> --identifier <identifier> [options] -- <command> [<argument> ...]',
      takesCommandLine: true,
      hasJsonOption: false,
      options: {
        concurrency: {
          type: 'string',
          value: '<n>',
          help: 'commands with this identifier that may run at once; at least 1',
        },
        identifier: { type: 'string', value: '<identifier>', help: 'what the limit is for' },
        namespace: { type: 'string', value: '<name or id>', help: 'default: default' },
        ttl: {
          ...TTL_OPTION,
          help: `time until the lease ends if weir is killed, 1s to 24h; default: ${DEFAULT_TTL}`,
        },
        wait: {
          type: 'string',
          value: '<duration>',
          help: 'try again until it is granted, at most this long; default: try once',
        },
      },
      run: async (call) => {
        const { concurrency, identifier, namespace, ttl = DEFAULT_TTL, wait } = call.values;
        const fields = {
          namespace,
          identifier: required('identifier', identifier),
          limit: parseInteger('concurrency', required('concurrency', concurrency), 1),
          ttl: parseTtl(ttl),
        };
        // Usually an unset shell variable.
        if (fields.identifier === '') throw new StartError('--identifier must not be empty');
        const waitMs = wait === undefined ? 0 : parseDuration('wait', wait, WAIT_BOUNDS);
        const server = call.server();
        const { lease, sentMs } = await acquireWithin(server, fields, waitMs);
        const { success, leaseId } = lease;
        if (!success) {
          printError(describeDenial(lease));
          return EXIT.DENIED;
        }
        if (leaseId === null) {
          printError('there is no room for a record: the command runs without a lease');
        }
        const held = leaseId === null ? undefined : new HeldLease(server, leaseId, fields.ttl);
        return runHolding(held, sentMs, call.positionals);
      },
    }),
  },
  notes: `
Acquires a concurrency lease, runs the command, renews the lease meanwhile, and releases it when the
command has ended. The exit code is that of the command; 128 and the number of the signal, if a
signal has ended it; 127, if there is no such command; or 126, if it cannot be run. weir passes
SIGHUP, SIGINT, SIGQUIT and SIGTERM to the command, waits for its end, and then ends itself.

If weir itself is killed, the command runs on, and the lease ends when --ttl has passed. If the
lease ends while the command runs, weir says so, and the command runs on: the limit may be exceeded.
The command inherits the environment, also WEIR_KEY.
`,
  examples: [
    'weir run --concurrency 1 --identifier nightly-backup -- /usr/local/bin/backup --full',
    'weir run --concurrency 4 --identifier job --namespace cron --wait 5m -- ./job.sh',
  ],
  exitCodes: [EXIT.OK, EXIT.DENIED, ...CLIENT_EXIT_CODES.slice(1)],
  exitMeanings: {
    [EXIT.OK]: 'success of the command',
    [EXIT.DENIED]: 'denied: the command did not run',
  },
};

/** Without jitter, commands that one event has started would all ask at the same times. */
function withJitter(ms: number): number {
  return ms * 0.75 + randomInt(Math.ceil(ms / 2) + 1);
}

/** @returns the last answer, and when its request was sent. @throws StartError */
async function acquireWithin(
  server: ServerClient,
  fields: Parameters<typeof acquireLease>[1],
  waitMs: number,
) {
  const endMs = monotonicMs() + waitMs;
  const retryMs = Math.min(RETRY_MS, waitMs / TRIES_MIN);
  for (;;) {
    const sentMs = monotonicMs();
    const lease = await acquireLease(server, fields);
    const leftMs = endMs - monotonicMs();
    if (lease.success || leftMs <= 0) return { lease, sentMs };
    await sleep(Math.min(leftMs, withJitter(retryMs)));
  }
}

/** @param held undefined for a lease without a record. @returns the exit code of the command */
async function runHolding(
  held: HeldLease | undefined,
  sentMs: number,
  [file, ...args]: readonly string[],
): Promise<number> {
  let child: ChildProcess | undefined;
  const isAtTerminal = STANDARD_STREAMS.some((fd) => isatty(fd));
  const forward = (signal: NodeJS.Signals) => {
    if (!isAtTerminal || !TERMINAL_SIGNALS.includes(signal)) child?.kill(signal);
  };
  for (const signal of SIGNALS) process.on(signal, forward);
  const end = new AbortController();
  const renewals = held?.renewUntil(end.signal, sentMs);
  try {
    child = spawn(file, args, { stdio: 'inherit' });
    return await exitCodeOf(child);
  } catch (error) {
    printError(`${formatValue(file)} cannot be run: ${describeFileError(error)}`);
    const { code } = error as NodeJS.ErrnoException;
    return code === 'ENOENT' ? EXIT_NOT_FOUND : EXIT_NOT_RUNNABLE;
  } finally {
    end.abort();
    await renewals;
    await held?.release();
    for (const signal of SIGNALS) process.off(signal, forward);
  }
}

function exitCodeOf(child: ChildProcess): Promise<number> {
  return new Promise((resolve, reject) => {
    child.on('error', (error) => {
      // A command that runs as another user may not be signalled. That is an error too.
      if (child.pid === undefined) reject(error);
    });
    child.once('exit', (code, signal) => {
      resolve(code ?? EXIT_SIGNAL + constants.signals[signal as NodeJS.Signals]);
    });
  });
}

class HeldLease {
  readonly #server: ServerClient;
  readonly #id: string;
  readonly #ttlMs: number;
  #hasEnded = false;

  constructor(server: ServerClient, id: string, ttlMs: number) {
    this.#server = server;
    this.#id = id;
    this.#ttlMs = ttlMs;
  }

  /** Renews the lease until the signal, or until it has ended. @param sentMs of the acquire */
  async renewUntil(signal: AbortSignal, sentMs: number): Promise<void> {
    const retryMs = Math.min(RETRY_MS, this.#ttlMs / TRIES_MIN);
    // The server counts from a later time, so the lease does not end before.
    let endMs = sentMs + this.#ttlMs;
    let isFailing = false;
    while (!signal.aborted) {
      const delayMs = isFailing ? withJitter(retryMs) : this.#ttlMs / RENEWALS_PER_TTL;
      await sleep(delayMs, undefined, { signal }).catch(() => {});
      if (signal.aborted) return;
      const nowMs = monotonicMs();
      try {
        const { success } = await renewLease(this.#server, this.#id, this.#ttlMs, signal);
        if (!success) return this.#reportEnd();
        endMs = nowMs + this.#ttlMs;
        isFailing = false;
      } catch (error) {
        if (signal.aborted) return;
        if (monotonicMs() >= endMs) return this.#reportEnd();
        if (!isFailing) printError(`the lease is not renewed yet: ${describeFailure(error)}`);
        isFailing = true;
      }
    }
  }

  /** The command is not ended: a job that stops halfway is worse than one too many for a while. */
  #reportEnd(): void {
    this.#hasEnded = true;
    printError('the lease has ended, and the command runs on: the limit may be exceeded');
  }

  async release(): Promise<void> {
    if (this.#hasEnded) return;
    try {
      await releaseLease(this.#server, this.#id);
    } catch (error) {
      // It has ended: a killed server forgets the newest leases.
      if (error instanceof ServerError && error.code === 'NOT_FOUND') return;
      const end = `it ends by itself within ${formatDuration(this.#ttlMs)}`;
      printError(`the lease is not released, ${end}: ${describeFailure(error)}`);
    }
  }
}

/** A message of the server could quote the lease id, its code does not. */
function describeFailure(error: unknown): string {
  return error instanceof ServerError ? error.code : (error as Error).message;
}
