/**
 * A timeout that allows for a busy process. Such a process reads no response, and a single timer
 * would end before the response is read. So the timeout has five steps, and one turn of the event
 * loop after them.
 */

const STEPS = 5;

/** @returns a function that cancels it */
export function startDeadline(timeoutMs: number, onTimeout: () => void): () => void {
  let timer: ReturnType<typeof setTimeout>;
  let steps = STEPS;
  const step = () => {
    timer = steps-- > 0 ? setTimeout(step, timeoutMs / STEPS) : setTimeout(onTimeout);
  };
  step();
  return () => clearTimeout(timer);
}
