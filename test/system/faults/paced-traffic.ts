/**
 * Sends checks at set rates on one connection, without waiting for responses: an open loop. Checks
 * that are due at the same time share a packet, so that thousands per second cost a client little.
 */

import { connect } from 'node:net';
import type { PreparedCheck } from './traffic.ts';

const TICK_MS = 5;
/** Checks that are due while so many are unanswered are not sent: the server is too slow. */
const UNANSWERED_MAX = 2_000;
const RESPONSE_TIMEOUT_MS = 15_000;

export interface PacedStream {
  check: PreparedCheck;
  perSecond: number;
}

export interface PacedOptions {
  port: number;
  streams: readonly PacedStream[];
  durationMs: number;
  onDecision: (check: PreparedCheck, isAllowed: boolean, reset: number) => void;
}

export interface PacedResult {
  sent: number;
  /** Checks that were due, and not sent. */
  skipped: number;
}

/** @throws if a response is no decision, or does not come */
export function sendPaced(options: PacedOptions): Promise<PacedResult> {
  const { port, streams, durationMs, onDecision } = options;
  return new Promise((resolve, reject) => {
    const socket = connect(port, '127.0.0.1');
    const unanswered: PreparedCheck[] = [];
    const result = { sent: 0, skipped: 0 };
    const done = streams.map(() => 0);
    let text = '';
    let startMs = 0;
    let timer: NodeJS.Timeout | undefined;
    let isEnding = false;
    const fail = (error: Error) => {
      clearInterval(timer);
      socket.destroy();
      reject(error);
    };
    const tick = () => {
      const passedMs = Math.min(performance.now() - startMs, durationMs);
      const packet: Buffer[] = [];
      for (const [i, { check, perSecond }] of streams.entries()) {
        const due = Math.floor((passedMs * perSecond) / 1_000);
        for (; done[i] < due; done[i]++) {
          if (unanswered.length >= UNANSWERED_MAX) {
            result.skipped++;
            continue;
          }
          unanswered.push(check);
          packet.push(check.bytes);
        }
      }
      result.sent += packet.length;
      if (packet.length > 0) socket.write(Buffer.concat(packet));
      if (passedMs < durationMs) return;
      clearInterval(timer);
      isEnding = true;
      if (unanswered.length === 0) socket.end();
    };
    socket.setNoDelay(true);
    socket.setTimeout(RESPONSE_TIMEOUT_MS, () => fail(new Error('no response')));
    socket.on('connect', () => {
      startMs = performance.now();
      timer = setInterval(tick, TICK_MS);
    });
    socket.on('error', fail);
    socket.on('close', () => {
      if (unanswered.length > 0 || !isEnding)
        fail(new Error(`closed before ${unanswered.length} responses: ${text}`));
      else resolve(result);
    });
    socket.on('data', (data) => {
      text += data.toString('latin1');
      let end = 0;
      for (const match of text.matchAll(/HTTP\/1\.1 (\d+)[^{]*(\{[^}]*\})/g)) {
        const check = unanswered.shift();
        if (check === undefined || match[1] !== '200') return fail(new Error(match[0]));
        const { success, reset } = JSON.parse(match[2]);
        onDecision(check, success, reset);
        end = match.index + match[0].length;
      }
      text = text.slice(end);
      if (isEnding && unanswered.length === 0) socket.end();
    });
  });
}
