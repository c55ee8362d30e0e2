/**
 * The names of all keys and channels of counters, which `records.ts` draws. Counters are divided
 * into buckets; all keys of a bucket have the same hash tag and lie in one slot of a Redis Cluster.
 * One script call is for one bucket.
 */

import { CLUSTER_BUCKETS } from '../../../core/constants.ts';
import type { Identity } from '../../../core/hash.ts';
import { CLUSTER_SLOTS, slotOfKey } from '../../../redis/slot.ts';
import type { HoldKind, Secret } from '../../hold-id.ts';
import { NAMES } from './records.ts';

const PREFIX = /^[^{}\s]+$/;

export class KeySpace {
  readonly bucketCount: number;
  readonly #heads: readonly string[];

  /** @param isCluster whether keys need to be spread over the slots of a Redis Cluster */
  constructor(prefix: string, isCluster: boolean) {
    if (!PREFIX.test(prefix)) {
      throw new Error(`a prefix of keys has no braces and no white space; got "${prefix}"`);
    }
    const tags = isCluster ? clusterTags() : ['0'];
    this.bucketCount = tags.length;
    this.#heads = tags.map((tag) => `${prefix}:{${tag}}:`);
  }

  get isCluster(): boolean {
    return this.bucketCount > 1;
  }

  bucketOf({ h3 }: Identity): number {
    return h3 & (this.bucketCount - 1);
  }

  members(bucket: number): string {
    return this.#heads[bucket] + NAMES.BUCKET_KEY;
  }

  /**
   * The key of a counter without its window, which a script appends. No key has this name, so that
   * a Redis Cluster refuses scripts while it moves the slot: half of the keys would be missing.
   */
  counter(identity: Identity, durationMs: number): string {
    return `${this.#head(identity)}${NAMES.COUNTER_KEY}${hexOf(identity)}:${durationMs}`;
  }

  gcra(identity: Identity, durationMs: number): string {
    return `${this.#head(identity)}${NAMES.GCRA_KEY}${hexOf(identity)}:${durationMs}`;
  }

  index(identity: Identity): string {
    return this.#head(identity) + NAMES.INDEX_KEY + hexOf(identity);
  }

  /** @param name see `nameOfHold` */
  hold(bucket: number, name: string): string {
    return this.#heads[bucket] + NAMES.HOLD_KEY + name;
  }

  /** No hold has this key: scripts of holds name it for the same reason as that of `counter`. */
  noHold(bucket: number): string {
    return this.hold(bucket, '');
  }

  /** The live holds of an identity. */
  holdsOf(identity: Identity): string {
    return this.#head(identity) + NAMES.IDENTITY_HOLDS_KEY + hexOf(identity);
  }

  holdSums(identity: Identity): string {
    return this.#head(identity) + NAMES.HOLD_SUMS_KEY + hexOf(identity);
  }

  /** @param request the hash of what makes two requests the same */
  request(request: Identity): string {
    return this.#head(request) + NAMES.REQUEST_KEY + hexOf(request);
  }

  channel(bucket: number, member: string): string {
    return this.#heads[bucket] + NAMES.CHANNEL_KEY + member;
  }

  #head(identity: Identity): string {
    return this.#heads[this.bucketOf(identity)];
  }
}

/** The identity in keys and messages: 32 hexadecimal digits. */
export function hexOf({ h0, h1, h2, h3 }: Identity): string {
  return wordHex(h0) + wordHex(h1) + wordHex(h2) + wordHex(h3);
}

export function identityFromHex(hex: string): Identity {
  if (!/^[0-9a-f]{32}$/.test(hex)) throw new Error(`"${hex}" is not an identity`);
  const word = (at: number) => Number.parseInt(hex.slice(at, at + 8), 16) | 0;
  return { h0: word(0), h1: word(8), h2: word(16), h3: word(24) };
}

/** @param number in the list of a reservation; else 0 */
export function nameOfHold(kind: HoldKind, secret: Secret, number: number): string {
  return `${kind}.${secret.map(wordHex).join('')}.${number}`;
}

/** @throws Error if it is not the name of a hold */
export function parseNameOfHold(name: string): { secret: Secret; number: number } {
  const match = /^[12]\.([0-9a-f]{24})\.([0-9]{1,2})$/.exec(name);
  if (match === null) throw new Error(`"${name}" is not a hold`);
  const [, hex, number] = match;
  const word = (at: number) => Number.parseInt(hex.slice(at, at + 8), 16) | 0;
  return { secret: [word(0), word(8), word(16)], number: Number(number) };
}

function wordHex(word: number): string {
  return (word >>> 0).toString(16).padStart(8, '0');
}

/** By bucket, the first number whose slot lies in the bucket's share of the slots. */
function clusterTags(): string[] {
  const tags = new Array<string | undefined>(CLUSTER_BUCKETS).fill(undefined);
  for (let found = 0, number = 0; found < CLUSTER_BUCKETS; number++) {
    const tag = String(number);
    const bucket = Math.floor(slotOfKey(tag) / (CLUSTER_SLOTS / CLUSTER_BUCKETS));
    if (tags[bucket] !== undefined) continue;
    tags[bucket] = tag;
    found++;
  }
  return tags as string[];
}
