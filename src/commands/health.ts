/**
 * `weir health`: asks the admin port of a server whether it answers checks. Health checks of
 * containers and units of systemd run it, so it needs no other program. It reads the settings that
 * the server reads, and needs no key.
 */

import { setTimeout as sleep } from 'node:timers/promises';
import { StartError } from '../core/errors.ts';
import { EXIT } from '../core/exit.ts';
import type { Readiness } from '../observe/readiness.ts';
import { isoTime, systemMs } from '../shared-memory/clock.ts';
import { type Command, subcommand } from './command.ts';
import { parseDuration, parseInteger } from './options.ts';
import { adminAddress, type ServerAddress } from './server-address.ts';
import { noResponseError } from './server-client.ts';

const DEFAULT_TIMEOUT = '2s';
const TIMEOUT_BOUNDS = { minimumMs: 1, maximumMs: 300_000, needsUnit: true } as const;
const POLL_MS = 50;
/** The highest number that Linux gives to a process. */
const PID_MAX = 2 ** 22;

type Health = Pick<Readiness, 'isReady' | 'body'>;

const ask = subcommand({
  usage: '[options]',
  options: {
    wait: {
      type: 'string',
      value: '<duration>',
      help: 'ask again until the server is ready, at most this long; default: ask once',
    },
    pid: {
      type: 'string',
      value: '<pid>',
      help: 'wait only while this process runs: a server whose start fails ends the wait at once',
    },
    url: {
      type: 'string',
      value: '<url>',
      help: 'the admin port; default: by WEIR_ADMIN_HOST and WEIR_ADMIN_PORT, or WEIR_CONFIG',
    },
    timeout: {
      type: 'string',
      value: '<duration>',
      help: `how long to wait for each response; default: ${DEFAULT_TIMEOUT}`,
    },
  },
  needsServer: false,
  run: async (call) => {
    const { wait, pid: server, url, timeout = DEFAULT_TIMEOUT } = call.values;
    const timeoutMs = parseDuration('timeout', timeout, TIMEOUT_BOUNDS);
    const waitMs = wait === undefined ? 0 : parseDuration('wait', wait, TIMEOUT_BOUNDS);
    const pid = server === undefined ? undefined : parseInteger('pid', server, 1, PID_MAX);
    const { isReady, body } = await waitUntilReady(adminAddress(url), timeoutMs, waitMs, pid);
    call.print(body, () => describeHealth(isReady, body));
    return isReady ? EXIT.OK : EXIT.NOT_READY;
  },
});

/**
 * @param pid the process of the server, if it is known
 * @returns the last answer. @throws StartError if the last request had none
 */
async function waitUntilReady(
  address: ServerAddress,
  timeoutMs: number,
  waitMs: number,
  pid: number | undefined,
): Promise<Health> {
  const endMs = systemMs() + waitMs;
  for (;;) {
    const isLast = systemMs() + POLL_MS >= endMs;
    try {
      const health = await fetchHealth(address, timeoutMs);
      if (health.isReady || isLast) return health;
    } catch (error) {
      if (isLast) throw error;
    }
    if (pid !== undefined && !isRunning(pid)) {
      throw new StartError(`the process ${pid} has ended before it was ready`, EXIT.NO_ANSWER);
    }
    await sleep(POLL_MS);
  }
}

function isRunning(pid: number): boolean {
  try {
    return process.kill(pid, 0);
  } catch (error) {
    // EPERM: it runs, as another user.
    return (error as NodeJS.ErrnoException).code !== 'ESRCH';
  }
}

async function fetchHealth(address: ServerAddress, timeoutMs: number): Promise<Health> {
  const { url, source } = address;
  let status: number;
  let text: string;
  try {
    const response = await fetch(`${url}/readyz`, { signal: AbortSignal.timeout(timeoutMs) });
    status = response.status;
    text = await response.text();
  } catch (error) {
    throw noResponseError(address, error as Error, timeoutMs);
  }
  const body = parseHealth(text);
  if (body !== undefined && (status === 200 || status === 503)) {
    return { isReady: status === 200, body };
  }
  throw new StartError(
    `${url} (${source}) sent a response with status ${status} that is not from the admin port of` +
      ' weir: check the URL',
    EXIT.NO_ANSWER,
  );
}

function parseHealth(text: string): Health['body'] | undefined {
  try {
    const body = JSON.parse(text);
    return typeof body?.status === 'string' ? body : undefined;
  } catch {
    return undefined;
  }
}

function describeHealth(
  isReady: boolean,
  { status, reasons = [], pastFaults = [] }: Health['body'],
): string {
  const past = pastFaults.map(({ cause, start, end }) => {
    return `earlier: ${cause}, ${secondOf(start)} to ${secondOf(end)}`;
  });
  return [isReady ? status : `not ready: ${status}`, ...reasons, ...past].join('\n');
}

/** @param ms a Unix time */
function secondOf(ms: number): string {
  return isoTime(Math.floor(ms / 1_000) * 1_000);
}

export const health: Command = {
  subcommands: { '': ask },
  notes: `
Asks /readyz of the admin port. A server that answers checks is ready, also where it is degraded.
Faults of the last day that have ended follow, since the start of the server: when each began and
ended. The command reads the same variables and file as weir serve, but not its flags.
`,
  examples: ['weir health', 'weir health --wait 30s', 'weir health --url http://127.0.0.1:7071'],
  exitCodes: [EXIT.OK, EXIT.NOT_READY, EXIT.USAGE, EXIT.NO_ANSWER],
  exitMeanings: { [EXIT.OK]: 'ready, or degraded', [EXIT.NOT_READY]: 'not ready' },
};
