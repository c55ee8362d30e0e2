/**
 * The connections of the admin port, which are bounded so that no client keeps a probe out.
 *
 * Some of them are reserved for probes: /livez, /readyz and /metrics. A connection takes one of the
 * ordinary places when it opens, if one is free, and gives it back when it requests a probe. Any
 * other request needs an ordinary place.
 *
 * A new connection is always accepted. Where there are too many, the one is closed that has been
 * without a request for the longest time, whatever it waits for: a state that saves a connection
 * from that would let a client keep out all others. The close waits until the requests that have
 * arrived are read, unless twice as many connections are open.
 */

import type { Socket } from 'node:net';
import { ADMIN_CONNECTIONS_FOR_PROBES, ADMIN_CONNECTIONS_MAX } from '../core/constants.ts';

const ORDINARY_MAX = ADMIN_CONNECTIONS_MAX - ADMIN_CONNECTIONS_FOR_PROBES;
const BURST_MAX = 2 * ADMIN_CONNECTIONS_MAX;

export class AdminConnections {
  /** Whether each has an ordinary place; the one without a request for the longest time first. */
  readonly #sockets = new Map<Socket, boolean>();
  #ordinaryCount = 0;
  #isCloseScheduled = false;

  /** Takes a new connection, and has another one closed where there are too many. */
  add(socket: Socket): void {
    const isOrdinary = this.#ordinaryCount < ORDINARY_MAX;
    if (isOrdinary) this.#ordinaryCount++;
    this.#sockets.set(socket, isOrdinary);
    socket.once('close', () => this.#remove(socket));
    if (this.#sockets.size > BURST_MAX) {
      this.#closeOne();
    } else if (this.#sockets.size > ADMIN_CONNECTIONS_MAX && !this.#isCloseScheduled) {
      this.#isCloseScheduled = true;
      // Between these two turns of the loop, what has arrived is read.
      setImmediate(() => setImmediate(() => this.#closeExcess()));
    }
  }

  /** A request has come. @returns whether its connection may send it */
  allow(socket: Socket, isProbe: boolean): boolean {
    const isOrdinary = this.#remove(socket);
    // It was closed with its request unread.
    if (isOrdinary === undefined) return false;
    const takesPlace = !isProbe && this.#ordinaryCount < ORDINARY_MAX;
    if (takesPlace) this.#ordinaryCount++;
    this.#sockets.set(socket, takesPlace);
    return isProbe || takesPlace;
  }

  #closeExcess(): void {
    this.#isCloseScheduled = false;
    while (this.#sockets.size > ADMIN_CONNECTIONS_MAX) this.#closeOne();
  }

  #closeOne(): void {
    const [socket] = this.#sockets.keys();
    this.#remove(socket);
    socket.destroy();
  }

  /** Gives its place back. @returns whether that was an ordinary one; undefined: it had none */
  #remove(socket: Socket): boolean | undefined {
    const isOrdinary = this.#sockets.get(socket);
    if (isOrdinary) this.#ordinaryCount--;
    this.#sockets.delete(socket);
    return isOrdinary;
  }
}
