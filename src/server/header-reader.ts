/**
 * Reads all headers of a request once, for the identity of a policy and for the framing. Several
 * headers of one name, of which a client may have sent the first and a proxy the last, are joined
 * as HTTP allows. uWebSockets.js accepts heads of at most 32 KiB and 98 headers.
 */

import type { RequestAttributes } from '../policies/identifier.ts';
import { type Framing, FramingHeaders } from './framing.ts';
import type { HttpRequest } from './uws.ts';

export class HeaderReader implements RequestAttributes {
  method = '';
  pathSuffix = '';
  #names: readonly string[] = [];
  #values: (string | undefined)[] = [];
  #counts: number[] = [];
  readonly #framing = new FramingHeaders();

  /** @param names of the headers that the identity uses, in lower case */
  read(req: HttpRequest, method: string, pathSuffix: string, names: readonly string[]): Framing {
    this.method = method;
    this.pathSuffix = pathSuffix;
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
    const joined = this.#values[index];
    const separator = name === 'cookie' ? '; ' : ', ';
    this.#values[index] = joined === undefined ? value : joined + separator + value;
  };
}
