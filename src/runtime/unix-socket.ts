/**
 * Having the path of a Unix socket alone. An acceptor listens on it; the main thread looks before
 * whether it may, says after who may connect, and removes it in the end.
 *
 * A living server on the path, and anything that is no socket, stop the start and stay as they are.
 * What is left of a weir that was killed is a socket on which nobody listens: it is replaced. Under
 * weir's umask a new socket is for its owner alone, until it has the mode that was asked for.
 */

import { accessSync, chmodSync, constants, lstatSync, rmSync } from 'node:fs';
import { connect } from 'node:net';
import { dirname, resolve } from 'node:path';
import { SOCKET_PATH_MAX_BYTES } from '../core/constants.ts';
import { StartError } from '../core/errors.ts';
import { EXIT } from '../core/exit.ts';
import { reserveName } from './port.ts';

export class UnixSocket {
  readonly path: string;
  /** Which file is ours, once it is there. */
  #inode: bigint | undefined;

  private constructor(path: string) {
    this.path = path;
  }

  /** @throws StartError where the path is longer than the kernel takes */
  static requireShortPath(setting: string, path: string): void {
    const bytes = Buffer.byteLength(path);
    if (bytes <= SOCKET_PATH_MAX_BYTES) return;
    const takes = `must be a path of at most ${SOCKET_PATH_MAX_BYTES} bytes`;
    const got = `got ${bytes} bytes: ${JSON.stringify(path)}`;
    throw new StartError(`${setting} ${takes}; ${got}`, EXIT.USAGE);
  }

  /**
   * @param setting that names the path
   * @throws StartError where the path cannot be had
   */
  static async reserve(setting: string, path: string): Promise<UnixSocket> {
    UnixSocket.requireShortPath(setting, path);
    const refuse = (why: string): never => {
      throw new StartError(
        `${setting} must be a path in a directory that weir may write to, where nothing is or a` +
          ` socket that nobody listens on; got ${JSON.stringify(path)}: ${why}`,
      );
    };
    try {
      accessSync(dirname(path), constants.W_OK | constants.X_OK);
      if (inodeOf(path) !== undefined) {
        if (!lstatSync(path).isSocket()) refuse('it is no socket, and is left alone');
        if (await hasListener(path)) refuse('a server listens on it');
        rmSync(path);
      }
      await reserveName(`socket:${resolve(path)}`);
    } catch (error) {
      if (error instanceof StartError) throw error;
      const { code, message } = error as NodeJS.ErrnoException;
      refuse(code === 'EADDRINUSE' ? 'another weir has it' : message);
    }
    return new UnixSocket(path);
  }

  /** Whoever the mode names may connect from now on. @param mode in octal digits */
  applyMode(mode: string): void {
    chmodSync(this.path, Number.parseInt(mode, 8));
    this.#inode = inodeOf(this.path);
  }

  /** Nobody finds it any more. What came in its place meanwhile is not ours. */
  remove(): void {
    if (this.#inode !== undefined && inodeOf(this.path) === this.#inode) rmSync(this.path);
  }
}

function inodeOf(path: string): bigint | undefined {
  return lstatSync(path, { bigint: true, throwIfNoEntry: false })?.ino;
}

/** Whether anybody listens. Rejects when that cannot be known. */
function hasListener(path: string): Promise<boolean> {
  return new Promise((resolve, reject) => {
    const probe = connect({ path }, () => {
      probe.destroy();
      resolve(true);
    });
    probe.on('error', (error: NodeJS.ErrnoException) => {
      if (error.code === 'ECONNREFUSED') resolve(false);
      // So many wait to be taken that there is no room for another.
      else if (error.code === 'EAGAIN') resolve(true);
      else reject(error);
    });
  });
}
