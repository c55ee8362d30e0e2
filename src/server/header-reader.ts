/**
 * The head of a request, looked through once for what its policy asks about. A header may come in
 * several lines, of which a client may have written the first and a proxy the last: all of them are
 * put together, as HTTP says that they may be. uWebSockets.js lets no head in that is longer than
 * 32 KiB or a hundred lines.
 */

import type { RequestAttributes } from '../policies/identity.ts';
import { type Framing, FramingHeaders } from './framing.ts';
import type { HttpRequest } from './uws.ts';

export class HeaderReader implements RequestAttributes {
  method = '';
  pathSuffix = '';
  #names: readonly string[] = [];
  #values: (string | undefined)[] = [];
  #counts: number[] = [];
  readonly #framing = new FramingHeaders();

  /** @param names of headers, in lower case */
  read(req: HttpRequest, method: string, tail: string, names: readonly string[]): Framing {
    this.method = method;
    this.pathSuffix = tail;
    this.#names = names;
    for (let index = 0; index < names.length; index++) {
      this.#values[index] = undefined;
      this.#counts[index] = 0;
    }
    this.#framing.reset();
    req.forEach(this.#collect);
    return this.#framing.toFraming();
  }

  header(name: string): string {
    return this.#values[this.#names.indexOf(name)] ?? '';
  }

  headerCount(name: string): number {
    return this.#counts[this.#names.indexOf(name)];
  }

  readonly #collect = (name: string, value: string): void => {
    this.#framing.add(name, value);
    const index = this.#names.indexOf(name);
    if (index < 0) return;
    this.#counts[index]++;
    const before = this.#values[index];
    const between = name === 'cookie' ? '; ' : ', ';
    this.#values[index] = before === undefined ? value : before + between + value;
  };
}
