/**
 * Reserves the path of a Unix socket for this process. The main thread checks the path before the
 * start, sets the file mode when the acceptor listens on it, and removes the file at the stop.
 *
 * A server that listens on the path, and a file that is no socket, stop the start and are left as
 * they are. A socket without a listener, left by a weir that was killed, is replaced. Under weir's
 * file mode mask only the owner can connect until `applyMode` is called.
 */

import { accessSync, chmodSync, constants, lstatSync, rmSync } from 'node:fs';
import { connect } from 'node:net';
import { dirname, resolve } from 'node:path';
import { SOCKET_PATH_MAX_BYTES } from '../core/constants.ts';
import { StartError } from '../core/errors.ts';
import { EXIT } from '../core/exit.ts';
import { reserveName } from './reserve-port.ts';

export class UnixSocket {
  readonly path: string;
  /** The inode of the socket file that this process has made. */
  #inode: bigint | undefined;

  private constructor(path: string) {
    this.path = path;
  }

  /** @throws StartError where the path is longer than the kernel accepts */
  static requireShortPath(setting: string, path: string): void {
    const bytes = Buffer.byteLength(path);
    if (bytes <= SOCKET_PATH_MAX_BYTES) return;
    throw new StartError(
      `${setting} must be a path of at most ${SOCKET_PATH_MAX_BYTES} bytes;` +
        ` got ${bytes} bytes: ${JSON.stringify(path)}`,
      EXIT.USAGE,
    );
  }

  /**
   * @param setting the setting that names the path
   * @throws StartError where the path is not available
   */
  static async reserve(setting: string, path: string): Promise<UnixSocket> {
    UnixSocket.requireShortPath(setting, path);
    const reject = (why: string): never => {
      throw new StartError(
        `${setting} must be a path in a directory that weir may write to, where no file is or a` +
          ` socket without a listener; got ${JSON.stringify(path)}: ${why}`,
      );
    };
    try {
      accessSync(dirname(path), constants.W_OK | constants.X_OK);
      if (inodeOf(path) !== undefined) {
        if (!lstatSync(path).isSocket()) reject('it is not a socket');
        if (await hasListener(path)) reject('a server listens on it');
        rmSync(path);
      }
      await reserveName(`socket:${resolve(path)}`);
    } catch (error) {
      if (error instanceof StartError) throw error;
      const { code, message } = error as NodeJS.ErrnoException;
      reject(code === 'EADDRINUSE' ? 'another weir uses it' : message);
    }
    return new UnixSocket(path);
  }

  /** Permits clients to connect, as the mode says. @param mode in octal digits */
  applyMode(mode: string): void {
    chmodSync(this.path, Number.parseInt(mode, 8));
    this.#inode = inodeOf(this.path);
  }

  /** Removes the socket file, unless another file has replaced it. */
  remove(): void {
    if (this.#inode !== undefined && inodeOf(this.path) === this.#inode) rmSync(this.path);
  }
}

function inodeOf(path: string): bigint | undefined {
  return lstatSync(path, { bigint: true, throwIfNoEntry: false })?.ino;
}

/** Whether a server listens on the path. Rejects when that cannot be found out. */
function hasListener(path: string): Promise<boolean> {
  return new Promise((resolve, reject) => {
    const probe = connect({ path }, () => {
      probe.destroy();
      resolve(true);
    });
    probe.on('error', (error: NodeJS.ErrnoException) => {
      if (error.code === 'ECONNREFUSED') resolve(false);
      // EAGAIN: the listener's queue of new connections is full.
      else if (error.code === 'EAGAIN') resolve(true);
      else reject(error);
    });
  });
}
