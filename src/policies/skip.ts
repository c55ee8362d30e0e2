/**
 * Decides which requests of a policy are allowed without a check: those that its field `skip`
 * names. A request that might be another one for the application is checked.
 */

import { type Gateway, isEnvoyBased } from './gateways.ts';
import {
  FORWARDED_METHOD,
  FORWARDED_URI,
  pathBehindPrefix,
  type RequestAttributes,
} from './identifier.ts';
import { plainPathOf } from './path.ts';
import { type Policy, PREFLIGHT } from './policy.ts';

/** Headers of each preflight, in lower case. */
export const PREFLIGHT_HEADERS = ['origin', 'access-control-request-method'] as const;

export class SkipReader {
  /** The headers that it reads, in lower case. */
  readonly headers: readonly string[];
  readonly #skipsPreflights: boolean;
  readonly #paths: ReadonlySet<string>;
  readonly #isEnvoyBased: boolean;

  /** @param gateway that sends the requests: one of those that the policy serves */
  constructor({ skip = [] }: Policy, gateway: Gateway) {
    this.#skipsPreflights = skip.includes(PREFLIGHT);
    this.#paths = new Set(skip.filter((entry) => entry !== PREFLIGHT));
    this.#isEnvoyBased = isEnvoyBased(gateway);
    const forwarded = this.#isEnvoyBased ? [] : [FORWARDED_METHOD, FORWARDED_URI];
    this.headers = skip.length === 0 ? [] : [...forwarded, ...PREFLIGHT_HEADERS];
  }

  /** Whether the request is allowed without a check. */
  skips(request: RequestAttributes): boolean {
    if (this.#skipsPreflights && this.#isPreflight(request)) return true;
    if (this.#paths.size === 0) return false;
    const target = this.#isEnvoyBased
      ? pathBehindPrefix(request.pathSuffix)
      : request.header(FORWARDED_URI);
    return this.#paths.has(plainPathOf(target));
  }

  #isPreflight(request: RequestAttributes): boolean {
    const method = this.#isEnvoyBased ? request.method : request.header(FORWARDED_METHOD);
    return method === 'OPTIONS' && PREFLIGHT_HEADERS.every((name) => request.header(name) !== '');
  }
}
