/**
 * Chooses how to read a check by the address to which the gateway has sent it.
 * A policy trusts other headers for each of its gateways, so a client must not be able to choose:
 * the address is fixed in the configuration of the gateway, and an unclear address is an error.
 *
 *     /v1/check/{namespace}?gateway=caddy    the query names the gateway
 *     /v1/check/{namespace}/{path}           Envoy or Istio: the query belongs to the client
 *     /v1/check/{namespace}                  the only gateway of the policy
 */

import { formatValue } from '../core/describe.ts';
import { ApiError } from '../core/errors.ts';
import { type Gateway, isEnvoyBased, returnsDenials } from './gateways.ts';
import { IdentifierReader } from './identifier.ts';
import { gatewaysOf, type Policy } from './policy.ts';
import { SkipReader } from './skip.ts';

const PARAMETER = 'gateway';
export const CONTENT_TYPE = 'content-type';

/** The query of the address of a check. */
export function gatewayQuery(gateway: string): string {
  return `${PARAMETER}=${gateway}`;
}

/** What weir reads in a check of one gateway. */
export interface CheckReader {
  identifier: IdentifierReader;
  /** Undefined if the policy skips no requests. */
  skip: SkipReader | undefined;
  /** Whether a denial of a gRPC request differs: weir then reads its Content-Type. */
  returnsDenials: boolean;
  /** All headers that weir reads, in lower case. */
  headers: readonly string[];
}

export class GatewayReaders {
  /** Describes the parts of an identifier to a client whose request lacks one. */
  readonly requiredParts: string;
  readonly #description: string;
  readonly #readers: readonly CheckReader[];
  /** Of the addresses of the readers, in the same order. */
  readonly #queries: readonly string[];
  /** Undefined for a policy that serves several gateways. */
  readonly #onlyReader: CheckReader | undefined;
  readonly #envoyReader: CheckReader | undefined;

  constructor(policy: Policy) {
    const gateways = gatewaysOf(policy);
    const readers = gateways.map((gateway) => checkReader(policy, gateway));
    this.#readers = readers;
    this.#queries = gateways.map(gatewayQuery);
    this.#onlyReader = readers.length === 1 ? readers[0] : undefined;
    this.#envoyReader = readers[gateways.findIndex(isEnvoyBased)];
    this.requiredParts = readers[0].identifier.requiredParts;
    const name = formatValue(policy.namespace);
    this.#description = `the policy for the namespace ${name} serves ${gateways.join(', ')}`;
  }

  /**
   * For an address that ends with the namespace. Comparing the whole query with each of a few texts
   * is cheaper than parsing it, and than a map, which would hash it.
   * @param query undefined for none
   * @throws ApiError
   */
  forQuery(query: string | undefined): CheckReader {
    if (query === undefined && this.#onlyReader !== undefined) return this.#onlyReader;
    for (let i = 0; i < this.#queries.length; i++) {
      if (query === this.#queries[i]) return this.#readers[i];
    }
    return this.#forUnusualQuery(query);
  }

  /**
   * For an address with a path behind the namespace.
   * @throws ApiError
   */
  forPath(): CheckReader {
    if (this.#envoyReader !== undefined) return this.#envoyReader;
    const rule = 'a check with a path behind the namespace comes from envoy or istio';
    throw new ApiError('NOT_FOUND', `${this.#description}; ${rule}`);
  }

  /** Some gateways append the client's query: it does no harm if there is nothing to choose. */
  #forUnusualQuery(query = ''): CheckReader {
    const namesGateway = new URLSearchParams(query).has(PARAMETER);
    if (this.#onlyReader !== undefined && !namesGateway) return this.#onlyReader;
    const rule = `the query of a check must be ${gatewayQuery('<name>')} with one of these names`;
    const received = query === '' ? 'no query' : formatValue(query);
    throw new ApiError('NOT_FOUND', `${this.#description}; ${rule}; got ${received}`);
  }
}

function checkReader(policy: Policy, gateway: Gateway): CheckReader {
  const identifier = new IdentifierReader(policy, gateway);
  const skip = policy.skip === undefined ? undefined : new SkipReader(policy, gateway);
  const isReturned = returnsDenials(gateway);
  const contentType = isReturned ? [CONTENT_TYPE] : [];
  const headers = new Set([...identifier.headers, ...(skip?.headers ?? []), ...contentType]);
  return { identifier, skip, returnsDenials: isReturned, headers: [...headers] };
}
