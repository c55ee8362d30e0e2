/** Values that are known at once, or in a later turn of the loop. */

export type Eventual<T> = T | Promise<T>;

/** Calls `next` with a value: in this turn if it is known. */
export function whenKnown<T, R>(value: Eventual<T>, next: (value: T) => Eventual<R>): Eventual<R> {
  return value instanceof Promise ? value.then(next) : next(value);
}
