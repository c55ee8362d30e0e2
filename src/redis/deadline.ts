/** Bounds how long callers wait. */

import { RedisError } from './errors.ts';

const POLL_MS = 10;

/** A call that may be repeated stops when its caller has stopped waiting. */
export interface Attempt {
  isOver: boolean;
}

/** @throws RedisError of the work, or of kind `timeout` */
export function withDeadline<T>(
  server: string,
  deadlineMs: number,
  work: (attempt: Attempt) => Promise<T>,
): Promise<T> {
  return new Promise((resolve, reject) => {
    const attempt: Attempt = { isOver: false };
    const timer = setTimeout(() => {
      attempt.isOver = true;
      reject(new RedisError('timeout', `${server}: no answer within ${deadlineMs} ms`));
    }, deadlineMs);
    work(attempt).then(
      (result) => {
        clearTimeout(timer);
        resolve(result);
      },
      (error) => {
        clearTimeout(timer);
        reject(error);
      },
    );
  });
}

/** Waits until the condition is true or the caller has stopped waiting, whichever is first. */
export async function waitFor(attempt: Attempt, condition: () => boolean): Promise<void> {
  while (!attempt.isOver && !condition()) await pause(POLL_MS);
}

export function pause(ms: number): Promise<void> {
  return new Promise((resolve) => {
    setTimeout(resolve, ms);
  });
}
