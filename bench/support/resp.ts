/** Sends encoded commands to Redis over several connections, with one under way on each. */

import { connect, type Socket } from 'node:net';

const TIMEOUT_MS = 30_000;
const NEW_LINE = 0x0a;
const NEW_LINES = Buffer.from('\r\n');

/** A string, a number, or an array of them; an error throws. */
export type Reply = string | number | Reply[];

export function encodeCommand(words: readonly (string | Buffer)[]): Buffer {
  const parts = words.flatMap((word) => {
    return [Buffer.from(`$${Buffer.byteLength(word)}\r\n`), Buffer.from(word), NEW_LINES];
  });
  return Buffer.concat([Buffer.from(`*${words.length}\r\n`), ...parts]);
}

export class RespConnections {
  readonly #sockets: readonly Socket[];

  private constructor(sockets: readonly Socket[]) {
    this.#sockets = sockets;
  }

  static async open(port: number, count: number): Promise<RespConnections> {
    const open = () => {
      return new Promise<Socket>((resolve, reject) => {
        const socket = connect(port, '127.0.0.1');
        socket.setNoDelay(true);
        socket.once('connect', () => resolve(socket)).once('error', reject);
      });
    };
    return new RespConnections(await Promise.all(Array.from({ length: count }, open)));
  }

  /** Sends one command over the first connection. */
  async command(words: readonly (string | Buffer)[], newLines: number): Promise<Reply> {
    const [reply] = await this.run([encodeCommand(words)], newLines);
    return parseReply(reply);
  }

  /**
   * @param newLines how many each reply has: replies are parsed by the caller, after the run
   * @returns the replies, in the order of the commands
   */
  run(commands: readonly Buffer[], newLines: number): Promise<Buffer[]> {
    const replies: Buffer[] = new Array(commands.length);
    let sent = 0;
    let received = 0;
    return new Promise((resolve, reject) => {
      const end = (error?: Error) => {
        clearTimeout(timer);
        for (const socket of this.#sockets) {
          socket.removeAllListeners('data').removeAllListeners('error');
        }
        if (error === undefined) resolve(replies);
        else reject(error);
      };
      const timer = setTimeout(() => end(new Error('Redis did not answer')), TIMEOUT_MS);
      for (const socket of this.#sockets) {
        let at = 0;
        let missing = 0;
        let chunks: Buffer[] = [];
        const sendNext = () => {
          if (sent === commands.length) return;
          at = sent++;
          missing = newLines;
          chunks = [];
          socket.write(commands[at]);
        };
        socket.on('error', end).on('data', (chunk: Buffer) => {
          if (chunks.length === 0 && chunk[0] === ERROR) {
            end(new Error(`Redis answers ${chunk.toString().trim()}`));
            return;
          }
          chunks.push(chunk);
          for (let i = chunk.indexOf(NEW_LINE); i >= 0; i = chunk.indexOf(NEW_LINE, i + 1)) {
            missing--;
          }
          if (missing > 0) return;
          replies[at] = Buffer.concat(chunks);
          received++;
          if (received === commands.length) end();
          else sendNext();
        });
        sendNext();
      }
    });
  }

  close(): void {
    for (const socket of this.#sockets) socket.destroy();
  }
}

const ERROR = 0x2d;

/** @throws where it is an error, or is not complete */
export function parseReply(reply: Buffer): Reply {
  const lines = reply.toString().split('\r\n');
  let at = 0;
  const next = (): Reply => {
    const line = lines[at++] ?? '';
    const rest = line.slice(1);
    if (line[0] === '+') return rest;
    if (line[0] === ':') return Number(rest);
    if (line[0] === '*') return Array.from({ length: Number(rest) }, next);
    if (line[0] !== '$') throw new Error(`Redis answers ${line}`);
    // A bulk string may have new lines.
    let text = lines[at++] ?? '';
    while (text.length < Number(rest) && at < lines.length) text += `\r\n${lines[at++]}`;
    return text;
  };
  return next();
}
