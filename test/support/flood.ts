/** Floods of requests through a gateway, by h2load, and what became of them. */

import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { isMissing } from './gateway-process.ts';

const run = promisify(execFile);

export const hasH2load = !isMissing('h2load', '--version');

const FLOOD_TIMEOUT_MS = 120_000;

export interface FloodOptions {
  port: number;
  requests: number;
  connections: number;
  /** Requests under way on each connection by HTTP/2 without TLS; by HTTP/1.1 it is one. */
  streams?: number | undefined;
}

export interface FloodResult {
  /** Answers with a 2xx. */
  allowed: number;
  /** Answers with a 4xx. */
  denied: number;
  /** Answers with a 5xx, and requests without an answer. */
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
  const answered = allowed + redirected + denied + broken;
  return { allowed, denied, failed: broken + requests - answered };
}
