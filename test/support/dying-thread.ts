/**
 * A thread that dies before one of its stores to shared memory. It is code of the test itself: it
 * gets an error there, and its later stores have no effect.
 */

import { vi } from 'vitest';

interface Views {
  words: Int32Array;
  doubles: Float64Array;
}

export class DyingThread {
  isDead = false;
  #storesLeft: number;
  readonly #targets = new Map<object, object>();

  /** @param stores how many it makes */
  constructor(stores: number) {
    this.#storesLeft = stores;
  }

  /** Has an object access its memory as this thread. */
  use(owner: { readonly words: object; readonly doubles: object }): void {
    Object.assign(owner, {
      words: this.#proxyOf(owner.words),
      doubles: this.#proxyOf(owner.doubles),
    } as Views);
  }

  /** Runs code until it ends, or the thread dies. @returns whether it has died */
  run(act: () => void): boolean {
    const { compareExchange, store } = Atomics;
    const targetOf = (view: object) => (this.#targets.get(view) ?? view) as Int32Array;
    const exchange: typeof compareExchange = (view: object, at: number, from: never, to: never) => {
      if (targetOf(view)[at] === from && !this.#mayStore()) return from;
      return compareExchange(targetOf(view), at, from, to) as never;
    };
    const put: typeof store = (view: object, at: number, value: never) => {
      if (this.#mayStore()) store(targetOf(view), at, value);
      return value;
    };
    const spies = [
      vi.spyOn(Atomics, 'compareExchange').mockImplementation(exchange),
      vi.spyOn(Atomics, 'store').mockImplementation(put),
    ];
    try {
      act();
    } catch (error) {
      if (!this.isDead) throw error;
    } finally {
      for (const spy of spies) spy.mockRestore();
    }
    return this.isDead;
  }

  /** @throws where the thread dies */
  #mayStore(): boolean {
    if (this.isDead) return false;
    if (this.#storesLeft-- > 0) return true;
    this.isDead = true;
    throw new Error('the thread has died');
  }

  #proxyOf(view: object): object {
    const proxy = new Proxy(view, {
      get: (target, name) => Reflect.get(target, name),
      set: (target, name, value) => {
        return this.#mayStore() ? Reflect.set(target, name, value) : true;
      },
    });
    this.#targets.set(proxy, view);
    return proxy;
  }
}
