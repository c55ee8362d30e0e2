/** Sends a flood of requests through a gateway with h2load, and counts the responses by status. */

import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { isMissing } from '../support/programs/program.ts';

const run = promisify(execFile);

export const hasH2load = !isMissing('h2load', '--version');

const FLOOD_TIMEOUT_MS = 120_000;

export interface FloodOptions {
  port: number;
  requests: number;
  connections: number;
  /** Concurrent requests on each connection, over HTTP/2 without TLS. Undefined: HTTP/1.1. */
  streams?: number | undefined;
}

interface FloodResult {
  /** Responses with a 2xx status. */
  allowed: number;
  /** Responses with a 4xx status. */
  denied: number;
  /** Responses with a 5xx status, and requests without a response. */
  failed: number;
}

export async function runFlood(options: FloodOptions): Promise<FloodResult> {
  const { port, requests, connections, streams } = options;
  const protocol = streams === undefined ? ['--h1'] : ['-p', 'h2c', '-m', String(streams)];
  const size = ['-t', '1', '-n', String(requests), '-c', String(connections)];
  const command = [...protocol, ...size, `http://127.0.0.1:${port}/`];
  const { stdout } = await run('h2load', command, { timeout: FLOOD_TIMEOUT_MS });
  const [, allowed, redirected, denied, broken] =
    /status codes: (\d+) 2xx, (\d+) 3xx, (\d+) 4xx, (\d+) 5xx/.exec(stdout)!.map(Number);
  const responses = allowed + redirected + denied + broken;
  return { allowed, denied, failed: broken + requests - responses };
}
