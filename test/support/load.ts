/** A client that keeps one connection busy with checks, and records what each was answered. */

import { connect } from 'node:net';

export interface Conversation<T> {
  port: number;
  checks: number;
  /** Checks in a packet; the next packet goes out when all of one are answered. */
  depth: number;
  /** What to ask next, and its bytes. */
  next: () => T;
  bytes: (asked: T) => Buffer;
  /** `reset` is 0 where the answer is not a 200. */
  record: (asked: T, admitted: boolean, reset: number) => void;
}

const ANSWER =
  /\{"success":(true|false),"limit":\d+,"remaining":\d+,"reset":(\d+)\}|\{"error":[^\n]*?\}\}/g;

/** Resolves with the number of answers. Rejects when the connection breaks before. */
export function converse<T>(conversation: Conversation<T>): Promise<number> {
  const { port, checks, depth, next, bytes, record } = conversation;
  return new Promise((resolve, reject) => {
    const socket = connect(port, '127.0.0.1');
    let batch: T[] = [];
    let received = '';
    let answered = 0;
    const send = () => {
      batch = Array.from({ length: depth }, next);
      socket.write(Buffer.concat(batch.map(bytes)));
    };
    socket.setNoDelay(true);
    socket.setEncoding('latin1');
    socket.setTimeout(20_000, () => {
      socket.destroy(new Error(`no answer for 20 s, after ${answered}`));
    });
    socket.on('error', reject);
    socket.on('close', () => reject(new Error(`closed after ${answered} answers`)));
    socket.on('connect', send);
    socket.on('data', (data) => {
      received += data;
      const answers = [...received.matchAll(ANSWER)];
      if (answers.length < depth) return;
      received = '';
      answers.forEach(([, success, reset], i) => {
        record(batch[i], success === 'true', Number(reset ?? 0));
      });
      answered += answers.length;
      if (answered < checks) return send();
      socket.removeAllListeners('close');
      socket.destroy();
      resolve(answered);
    });
  });
}

/** A sequence of numbers that a seed makes again. */
export function random(seed: number): (below: number) => number {
  let state = seed;
  return (below) => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) | 0;
    return (state >>> 8) % below;
  };
}

/** What was answered of one counter in one window. */
export interface Tally {
  admitted: number;
  /** The smallest cost that was refused. */
  refused: number;
}

export function tallyOf(tallies: Map<string, Tally>, key: string): Tally {
  let tally = tallies.get(key);
  if (tally === undefined) {
    tally = { admitted: 0, refused: Number.POSITIVE_INFINITY };
    tallies.set(key, tally);
  }
  return tally;
}
