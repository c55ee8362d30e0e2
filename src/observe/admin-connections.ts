/**
 * Bounds the connections of the admin port, so that no client can keep probes from being answered.
 *
 * Some connections are reserved for probes: /livez, /readyz and /metrics. A connection takes an
 * ordinary slot when it opens, if one is free, and returns it when it requests a probe. Any other
 * request needs an ordinary slot.
 *
 * A new connection is always accepted. Where there are too many, the connection without a request
 * for the longest time is closed, whatever its state: with an exempt state, one client could keep
 * out all others. The close waits until requests that have arrived are read, unless twice as many
 * connections are open.
 */

import type { Socket } from 'node:net';
import { ADMIN_CONNECTIONS_FOR_PROBES, ADMIN_CONNECTIONS_MAX } from '../core/constants.ts';

const ORDINARY_MAX = ADMIN_CONNECTIONS_MAX - ADMIN_CONNECTIONS_FOR_PROBES;
const BURST_MAX = 2 * ADMIN_CONNECTIONS_MAX;

export class AdminConnections {
  /**
   * Open connections, each with whether it has an ordinary slot. The first one has been without a
   * request for the longest time.
   */
  readonly #sockets = new Map<Socket, boolean>();
  #ordinaryCount = 0;
  #isCloseScheduled = false;

  /** Adds a new connection, and closes another one where there are too many. */
  add(socket: Socket): void {
    const isOrdinary = this.#ordinaryCount < ORDINARY_MAX;
    if (isOrdinary) this.#ordinaryCount++;
    this.#sockets.set(socket, isOrdinary);
    socket.once('close', () => this.#remove(socket));
    if (this.#sockets.size > BURST_MAX) {
      this.#closeOne();
    } else if (this.#sockets.size > ADMIN_CONNECTIONS_MAX && !this.#isCloseScheduled) {
      this.#isCloseScheduled = true;
      // Node reads the requests that have arrived between these two turns of the event loop.
      setImmediate(() => setImmediate(() => this.#closeExcess()));
    }
  }

  /** Registers a request. @returns whether its connection may send it */
  allow(socket: Socket, isProbe: boolean): boolean {
    const isOrdinary = this.#remove(socket);
    // The connection was closed before its request was read.
    if (isOrdinary === undefined) return false;
    const takesSlot = !isProbe && this.#ordinaryCount < ORDINARY_MAX;
    if (takesSlot) this.#ordinaryCount++;
    this.#sockets.set(socket, takesSlot);
    return isProbe || takesSlot;
  }

  /** Makes an open connection count as one with a request just now, as for an event stream. */
  touch(socket: Socket): void {
    const isOrdinary = this.#sockets.get(socket);
    if (isOrdinary === undefined) return;
    this.#sockets.delete(socket);
    this.#sockets.set(socket, isOrdinary);
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

  /** Returns its slot. @returns whether that was an ordinary one; undefined for a closed one */
  #remove(socket: Socket): boolean | undefined {
    const isOrdinary = this.#sockets.get(socket);
    if (isOrdinary) this.#ordinaryCount--;
    this.#sockets.delete(socket);
    return isOrdinary;
  }
}
