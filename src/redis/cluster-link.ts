/**
 * A cluster: each key is on the node that owns its slot. The owners are read from any node, again
 * when a node redirects or fails. A redirected call is repeated within its deadline, because the
 * node that redirected has not run it. Each node has a connection of its own for sharded channels:
 * the server ends a subscription when its slot moves, at a time that the client of npm mistakes for
 * the answer to a command that waits.
 */

import { CLUSTER_BUCKETS, REDIS_CALL_DEADLINE_MS, REDIS_DISCOVERY_MS } from '../core/constants.ts';
import { type Attempt, pause, withDeadline } from './deadline.ts';
import { parseRedirection, RedisError } from './errors.ts';
import type { RedisEvents, RedisLink } from './link.ts';
import type { Script } from './script.ts';
import { ServerConnection } from './server-connection.ts';
import type { ServerFacts } from './server-facts.ts';
import { LASTING_FAILURES, type LinkOptions } from './single-link.ts';
import { CLUSTER_SLOTS, slotOfKey } from './slot.ts';
import { describeAddress, describeTarget, type RedisAddress, type RedisTarget } from './url.ts';

/** Between repetitions of a call whose keys are being moved. */
const REPEAT_MS = 5;
/** Until nodes agree about a slot that has moved. */
const MOVED_MS = 50;
const REDIRECTIONS_MAX = 5;

interface Node {
  address: RedisAddress;
  connection: ServerConnection;
  /** Created when the node owns the slot of a channel. */
  subscriber: ServerConnection | undefined;
}

interface Channel {
  name: string;
  slot: number;
  onMessage: (message: string) => void;
  onSubscribed: () => void;
  /** The node that it is subscribed on; undefined if it must be subscribed again. */
  server: string | undefined;
  /** Whether that node has confirmed it. */
  isSubscribed: boolean;
}

export class ClusterLink implements RedisLink {
  readonly bucketCount = CLUSTER_BUCKETS;
  readonly target: string;
  readonly #seeds: readonly RedisAddress[];
  readonly #options: LinkOptions;
  readonly #events: RedisEvents;
  /** By address. */
  readonly #nodes = new Map<string, Node>();
  /** The address of the node that serves each slot. */
  readonly #owners = new Array<string | undefined>(CLUSTER_SLOTS).fill(undefined);
  /** The addresses in `#owners`, and whether each slot has one. */
  #primaries: ReadonlySet<string> = new Set();
  #isMapped = false;
  readonly #channels: Channel[] = [];
  readonly #discovery: NodeJS.Timeout;
  #error = new RedisError('unreachable', 'no node of the cluster is connected yet');
  #isDiscovering = false;
  #isClosed = false;

  constructor(target: RedisTarget, options: LinkOptions, events: RedisEvents) {
    this.target = describeTarget(target);
    this.#seeds = target.addresses;
    this.#options = options;
    this.#events = events;
    for (const address of this.#seeds) this.#nodeOf(address);
    this.#discovery = setInterval(() => {
      this.#maintain();
      for (const [server, node] of this.#nodes) void this.#verifyChannels(server, node);
    }, REDIS_DISCOVERY_MS);
  }

  get servers(): readonly ServerFacts[] {
    return [...this.#nodes.values()].flatMap(({ connection }) => connection.facts ?? []);
  }

  async refresh(): Promise<void> {
    const nodes = [...this.#nodes.values()];
    await Promise.all(nodes.map(({ connection }) => connection.refreshFacts()));
  }

  isConnected(key?: string): boolean {
    if (key !== undefined) return this.#owner(slotOfKey(key))?.connection.isReady ?? false;
    return (
      this.#isMapped &&
      [...this.#primaries].every((server) => {
        return this.#nodes.get(server)?.connection.isReady;
      })
    );
  }

  async ready(deadlineMs: number): Promise<void> {
    try {
      await withDeadline(this.target, deadlineMs, async (attempt) => {
        while (!this.isConnected() && !attempt.isOver) {
          if (this.#isClosed || LASTING_FAILURES.includes(this.#error.kind)) throw this.#error;
          await pause(REPEAT_MS);
        }
      });
    } catch (error) {
      throw error instanceof RedisError && error.kind === 'timeout' ? this.#error : error;
    }
  }

  call(
    script: Script,
    keys: readonly string[],
    args: readonly (string | Buffer)[],
    deadlineMs = REDIS_CALL_DEADLINE_MS,
  ): Promise<unknown> {
    const slot = slotOfKey(keys[0]);
    return withDeadline(this.target, deadlineMs, (attempt) => {
      return this.#route(slot, attempt, (connection, isAsking) => {
        return connection.run({ script, keys, args, isAsking });
      });
    });
  }

  send(
    key: string | undefined,
    words: readonly string[],
    deadlineMs = REDIS_CALL_DEADLINE_MS,
  ): Promise<unknown> {
    return withDeadline(this.target, deadlineMs, (attempt) => {
      if (key === undefined) return this.#anyNode().send(words);
      return this.#route(slotOfKey(key), attempt, (connection, isAsking) => {
        if (isAsking) connection.send(['ASKING']).catch(() => {});
        return connection.send(words);
      });
    });
  }

  subscribe(
    channels: readonly string[],
    onMessage: (index: number, message: string) => void,
    onSubscribed: (index: number) => void,
  ): void {
    for (const [index, name] of channels.entries()) {
      this.#channels.push({
        name,
        slot: slotOfKey(name),
        onMessage: (message) => onMessage(index, message),
        onSubscribed: () => onSubscribed(index),
        server: undefined,
        isSubscribed: false,
      });
    }
    this.#placeChannels();
  }

  close(): void {
    this.#isClosed = true;
    this.#error = new RedisError('unreachable', 'the connections to the cluster were closed');
    clearInterval(this.#discovery);
    for (const server of [...this.#nodes.keys()]) this.#removeNode(server);
  }

  /** Runs a call on the owner of a slot, and follows redirections. */
  async #route(
    slot: number,
    attempt: Attempt,
    run: (connection: ServerConnection, isAsking: boolean) => Promise<unknown>,
  ): Promise<unknown> {
    let node = this.#owner(slot);
    if (node === undefined) throw new RedisError('unreachable', this.#error.message);
    let isAsking = false;
    for (let redirections = 0; ; ) {
      try {
        return await run(node.connection, isAsking);
      } catch (error) {
        if (!(error instanceof RedisError)) throw error;
        if (error.kind === 'unreachable' || error.kind === 'lost') this.#maintain();
        if (error.kind !== 'cluster' || attempt.isOver || this.#isClosed) throw error;
        const next = this.#redirect(node, error);
        if (next === undefined) {
          if (!error.reply.startsWith('TRYAGAIN')) throw error;
          await pause(REPEAT_MS);
          continue;
        }
        if (++redirections > REDIRECTIONS_MAX) throw error;
        node = next.node;
        isAsking = next.isAsking;
        await node.connection.whenReady(attempt);
        if (attempt.isOver) throw error;
      }
    }
  }

  /** @returns undefined if the answer names no other node */
  #redirect(from: Node, error: RedisError): { node: Node; isAsking: boolean } | undefined {
    const redirection = parseRedirection(error);
    if (redirection === undefined) {
      if (!error.reply.startsWith('TRYAGAIN')) void this.#discover();
      return undefined;
    }
    const { kind, slot, port } = redirection;
    const host = redirection.host === '' ? from.address.host : redirection.host;
    const node = this.#nodeOf({ host, port });
    if (kind === 'MOVED' && slot < CLUSTER_SLOTS) {
      this.#owners[slot] = describeAddress(node.address);
      this.#placeChannels();
      // Other nodes may not know yet what the new owner knows.
      void this.#discover(node.connection);
    }
    return { node, isAsking: kind === 'ASK' };
  }

  #owner(slot: number): Node | undefined {
    const server = this.#owners[slot];
    return server === undefined ? undefined : this.#nodes.get(server);
  }

  #anyNode(): ServerConnection {
    const ready = this.#readyConnections();
    if (ready.length === 0) throw new RedisError('unreachable', this.#error.message);
    return ready[0];
  }

  #readyConnections(): ServerConnection[] {
    return [...this.#nodes.values()]
      .map(({ connection }) => connection)
      .filter(({ isReady }) => isReady);
  }

  /** The node at an address; a connection is opened to a new one. */
  #nodeOf(address: RedisAddress): Node {
    const server = describeAddress(address);
    const known = this.#nodes.get(server);
    if (known !== undefined) return known;
    const connection = this.#connect(address, {
      onReady: (facts) => {
        if (facts !== undefined) this.#events.onConnected?.(facts);
        void this.#discover();
      },
      onFailure: (error) => {
        this.#error = error;
        this.#events.onFailure?.(error);
        this.#maintain();
      },
    });
    const node: Node = { address, connection, subscriber: undefined };
    this.#nodes.set(server, node);
    return node;
  }

  #connect(
    address: RedisAddress,
    listeners: {
      onReady?: (facts: ServerFacts | undefined) => void;
      onFailure?: (error: RedisError) => void;
    },
  ): ServerConnection {
    return new ServerConnection({
      ...this.#options,
      ...listeners,
      locate: () => address,
      authenticates: 'always',
      database: 0,
      validate: requireClusterNode,
    });
  }

  #removeNode(server: string): void {
    const node = this.#nodes.get(server);
    this.#nodes.delete(server);
    node?.connection.close();
    node?.subscriber?.close();
  }

  /** While something is wrong, or a channel is not subscribed, the owners are read again. */
  #maintain(): void {
    if (this.#isClosed) return;
    this.#placeChannels();
    const isComplete = this.isConnected() && this.#channels.every(({ server }) => server);
    if (isComplete) return;
    // All known nodes may be gone: those of the URL are tried again.
    if (this.#readyConnections().length === 0) {
      for (const address of this.#seeds) this.#nodeOf(address);
    }
    void this.#discover();
  }

  /** @param first the node that is questioned before others */
  async #discover(first?: ServerConnection): Promise<void> {
    if (this.#isDiscovering || this.#isClosed) return;
    this.#isDiscovering = true;
    try {
      const ready = this.#readyConnections();
      if (first?.isReady) ready.unshift(first);
      for (const connection of ready) {
        try {
          const { address } = connection;
          const reply = await withDeadline(this.target, REDIS_DISCOVERY_MS, () => {
            return connection.send(['CLUSTER', 'SLOTS']);
          });
          if (address !== undefined && !this.#isClosed) this.#apply(reply, address);
          return;
        } catch (error) {
          if (!(error instanceof RedisError)) throw error;
          this.#error = error;
        }
      }
    } finally {
      this.#isDiscovering = false;
    }
  }

  /** @throws RedisError if the reply is not that of CLUSTER SLOTS */
  #apply(reply: unknown, from: RedisAddress): void {
    const ranges = parseSlotRanges(reply, from);
    // The owners of slots that no range names stay: a call of them fails with the node's answer.
    for (const { first, last, address } of ranges) {
      this.#nodeOf(address);
      this.#owners.fill(describeAddress(address), first, last + 1);
    }
    this.#isMapped = this.#owners.every((server) => server !== undefined);
    const owners = new Set(this.#owners.filter((server) => server !== undefined));
    this.#primaries = owners;
    const isUsable = [...owners].some((server) => this.#nodes.get(server)?.connection.isReady);
    for (const server of [...this.#nodes.keys()]) {
      // The last connection is not given up before another one stands.
      if (!owners.has(server) && isUsable) this.#removeNode(server);
    }
    this.#placeChannels();
  }

  /**
   * Finds out about subscriptions that the server has ended while the client took this for an
   * answer. Nobody else subscribes these channels.
   */
  async #verifyChannels(server: string, { subscriber }: Node): Promise<void> {
    const names = this.#channels
      .filter((channel) => channel.server === server && channel.isSubscribed)
      .map(({ name }) => name);
    if (names.length === 0 || !subscriber?.isReady) return;
    try {
      const { address } = subscriber;
      const reply = await withDeadline(server, REDIS_DISCOVERY_MS, () => {
        return subscriber.send(['PUBSUB', 'SHARDNUMSUB', ...names]);
      });
      if (subscriber.address !== address || !Array.isArray(reply)) return;
      const lost = this.#channels.find((channel) => {
        const isSame = channel.server === server && channel.isSubscribed;
        return isSame && reply[reply.indexOf(channel.name) + 1] === 0;
      });
      if (lost === undefined) return;
      const text = `${server}: the subscription of ${lost.name} was lost`;
      subscriber.reconnect(new RedisError('lost', text));
    } catch (error) {
      // The next interval tries again; a connection that does not answer is given up by itself.
      if (!(error instanceof RedisError)) throw error;
    }
  }

  /** Subscribes each channel on the node that owns its slot. */
  #placeChannels(): void {
    for (const channel of this.#channels) {
      const node = this.#owner(channel.slot);
      const server = node && describeAddress(node.address);
      if (channel.server === server) continue;
      if (channel.server !== undefined) {
        this.#nodes.get(channel.server)?.subscriber?.unsubscribe(channel.name);
      }
      channel.server = server;
      channel.isSubscribed = false;
      if (node === undefined) continue;
      node.subscriber ??= this.#connect(node.address, {});
      node.subscriber.subscribe(channel.name, {
        isSharded: true,
        onMessage: (message) => {
          if (channel.server === server) channel.onMessage(message);
        },
        onSubscribed: () => {
          if (channel.server !== server) return;
          channel.isSubscribed = true;
          channel.onSubscribed();
        },
        onMoved: () => {
          if (channel.server !== server) return;
          node.subscriber?.unsubscribe(channel.name);
          channel.server = undefined;
          // The nodes need some time to agree on the new owner.
          void pause(MOVED_MS).then(() => this.#discover());
        },
      });
    }
  }
}

function requireClusterNode({ server, isClusterNode }: ServerFacts): void {
  if (isClusterNode) return;
  const text = 'it is not a node of a cluster, for which the URL begins with redis://';
  throw new RedisError('unsupported', `${server}: ${text}`);
}

interface SlotRange {
  first: number;
  last: number;
  address: RedisAddress;
}

function parseSlotRanges(reply: unknown, from: RedisAddress): SlotRange[] {
  const ranges = Array.isArray(reply) ? reply.map((range) => parseSlotRange(range, from)) : [];
  const valid = ranges.filter((range) => range !== undefined);
  if (Array.isArray(reply) && valid.length === ranges.length) return valid;
  const server = describeAddress(from);
  throw new RedisError('unexpectedReply', `${server}: the answer to CLUSTER SLOTS is invalid`);
}

function parseSlotRange(range: unknown, from: RedisAddress): SlotRange | undefined {
  if (!Array.isArray(range)) return undefined;
  const [first, last, primary] = range as unknown[];
  const isSlot = (slot: unknown): slot is number => {
    return Number.isInteger(slot) && Number(slot) >= 0 && Number(slot) < CLUSTER_SLOTS;
  };
  if (!isSlot(first) || !isSlot(last) || !Array.isArray(primary)) return undefined;
  const [host, port] = primary as unknown[];
  if (!Number.isInteger(port) || Number(port) < 1 || Number(port) > 65_535) return undefined;
  if (typeof host !== 'string' && host !== null) return undefined;
  // A node that does not know its own name is where it answered.
  const isUnknown = host === null || host === '' || host === '?';
  return { first, last, address: { host: isUnknown ? from.host : host, port: Number(port) } };
}
