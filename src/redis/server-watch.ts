/**
 * What the servers of Redis say about their settings. A server that does not save its data is
 * logged. A server that deletes keys when its memory is full stops a start (WEIR_REDIS_EVICTION);
 * found later, it is logged, and /readyz names it. A process that runs is not ended: its checks
 * are decided, and all machines would end at once.
 */

import { StartError } from '../core/errors.ts';
import type { Log } from '../core/log.ts';
import type { RedisLink } from './link.ts';
import type { EvictionMode } from './settings.ts';

/** How often the servers are asked: their settings may change while they run. */
const INTERVAL_MS = 5_000;

const NO_EVICTION = 'noeviction';

const NOT_PERSISTENT =
  'Redis does not save its data: after its restart, keys, overrides and namespaces come from the' +
  ' stores of the machines that run, and are lost if none does (enable appendonly)';

const EVICTS_KEYS =
  'Redis deletes counters, keys, overrides and namespaces when its memory is full' +
  ' (set maxmemory-policy noeviction)';

const UNKNOWN_POLICY =
  'Redis does not tell its maxmemory-policy: with another one than noeviction it deletes' +
  ' counters, keys, overrides and namespaces when its memory is full';

export class ServerWatch {
  readonly #link: Pick<RedisLink, 'servers' | 'refresh'>;
  readonly #mode: EvictionMode;
  readonly #log: Pick<Log, 'warn' | 'error'>;
  /** The policy of each server when it was last seen. */
  readonly #policies = new Map<string, string | undefined>();
  #timer: NodeJS.Timeout | undefined;

  constructor(
    link: Pick<RedisLink, 'servers' | 'refresh'>,
    mode: EvictionMode,
    log: Pick<Log, 'warn' | 'error'>,
  ) {
    this.#link = link;
    this.#mode = mode;
    this.#log = log;
  }

  /** The connected servers that must not be used by WEIR_REDIS_EVICTION, with their policies. */
  get evicting(): string[] {
    if (this.#mode === 'accept') return [];
    return this.#link.servers.flatMap(({ server, evictionPolicy = NO_EVICTION }) => {
      return evictionPolicy === NO_EVICTION ? [] : [`${server}: ${evictionPolicy}`];
    });
  }

  /** @throws StartError */
  requireNoEviction(): void {
    const { evicting } = this;
    if (evicting.length === 0) return;
    throw new StartError(
      `the maxmemory-policy of Redis must be ${NO_EVICTION}; got ${evicting.join(', ')}` +
        ' (WEIR_REDIS_EVICTION=accept accepts it, but a full Redis then deletes counters,' +
        ' overrides and keys, and windows may exceed their limits)',
    );
  }

  /** Logs what the servers say, now and whenever it changes. */
  start(): void {
    this.#review();
    this.#timer = setInterval(() => {
      void this.#link.refresh().then(() => this.#review());
    }, INTERVAL_MS);
  }

  close(): void {
    clearInterval(this.#timer);
  }

  #review(): void {
    for (const { server, isPersistent, evictionPolicy } of this.#link.servers) {
      const isNew = !this.#policies.has(server);
      if (isNew && isPersistent === false) this.#log.warn({ server }, NOT_PERSISTENT);
      if (!isNew && this.#policies.get(server) === evictionPolicy) continue;
      this.#policies.set(server, evictionPolicy);
      if (evictionPolicy === NO_EVICTION) continue;
      if (evictionPolicy === undefined) this.#log.warn({ server }, UNKNOWN_POLICY);
      else {
        const level = this.#mode === 'accept' ? 'warn' : 'error';
        this.#log[level]({ server, policy: evictionPolicy }, EVICTS_KEYS);
      }
    }
  }
}
