/**
 * A TCP proxy on loopback that injects the faults of a network: delay each way, and blackholed,
 * half-closed and cut connections. Bytes stay in order. Each proxy has a thread of its own, so that
 * the load of a test does not add to the delays.
 */

import { once } from 'node:events';
import { Worker } from 'node:worker_threads';

/** What happens to bytes and connections from now on, also on connections that are open. */
export interface NetworkConditions {
  /** One way, ms. */
  delayMs: number;
  /** Added to the delay of each chunk: uniform from 0 up to this, ms. */
  jitterMs: number;
  /** Bytes are accepted and never forwarded, and connections stay open. */
  isBlackhole: boolean;
  /** New connections are closed at once. */
  refuses: boolean;
}

const PERFECT: NetworkConditions = {
  delayMs: 0,
  jitterMs: 0,
  isBlackhole: false,
  refuses: false,
};

/** How long the thread may take to follow a call. */
const ACTION_MAX_MS = 5_000;

/** Benchmarks run from a bundle, which does not contain the thread. */
const FOLDER = import.meta.url.includes('/dist/threads/') ? '../../test/system/redis/' : './';
const THREAD = new URL(`${FOLDER}delay-proxy.thread.mjs`, import.meta.url);

export interface DelayProxy {
  port: number;
  /** Changes some conditions. This and the calls below have taken effect when they return. */
  set: (conditions: Partial<NetworkConditions>) => void;
  /** Back to a network without faults. Bytes that a blackhole took are lost: also cuts. */
  heal: () => void;
  /** Resets all open connections. */
  cut: () => void;
  /** Ends the direction to the client of all open connections, and leaves the other one open. */
  halfClose: () => void;
  close: () => Promise<void>;
}

/**
 * @param port the server behind the proxy
 * @param conditions at first
 */
export async function startDelayProxy(
  port: number,
  conditions: Partial<NetworkConditions> = {},
): Promise<DelayProxy> {
  let isBlackhole = conditions.isBlackhole ?? false;
  // How many calls the thread has followed.
  const followed = new Int32Array(new SharedArrayBuffer(4));
  const thread = new Worker(THREAD, {
    workerData: { port, done: followed, conditions: { ...PERFECT, ...conditions } },
  });
  const exited = once(thread, 'exit');
  const [ownPort] = (await once(thread, 'message')) as [number];
  const act = (action: string, changes: Partial<NetworkConditions> = {}) => {
    const done = Atomics.load(followed, 0);
    thread.postMessage({ action, changes });
    if (Atomics.wait(followed, 0, done, ACTION_MAX_MS) === 'timed-out') {
      throw new Error(`the proxy did not ${action} within ${ACTION_MAX_MS} ms`);
    }
  };
  const set = (changes: Partial<NetworkConditions>) => {
    isBlackhole = changes.isBlackhole ?? isBlackhole;
    act('set', changes);
  };
  return {
    port: ownPort,
    set,
    heal: () => {
      const lostBytes = isBlackhole;
      set(PERFECT);
      if (lostBytes) act('cut');
    },
    cut: () => act('cut'),
    halfClose: () => act('halfClose'),
    close: async () => {
      thread.postMessage({ action: 'close' });
      await exited;
    },
  };
}
