/**
 * Finds the primary through Sentinels. Of their answers the one with the highest configuration
 * epoch counts, so that a Sentinel that was cut off does not lead back to an old primary.
 */

import { REDIS_DISCOVERY_MS } from '../core/constants.ts';
import { pause, withDeadline } from './deadline.ts';
import { RedisError } from './errors.ts';
import { type ConnectionOptions, ServerConnection } from './server-connection.ts';
import { describeAddress, type RedisAddress, type RedisTarget } from './url.ts';

/** How long other Sentinels are waited for when one answers. */
const OTHERS_MS = 200;

interface PrimaryAddress extends RedisAddress {
  epoch: number;
}

export class Sentinels {
  readonly #target: RedisTarget;
  readonly #connections: readonly ServerConnection[];
  #error = new RedisError('unreachable', 'no Sentinel is connected yet');

  constructor(target: RedisTarget, options: Pick<ConnectionOptions, 'tls' | 'credentials'>) {
    this.#target = target;
    this.#connections = target.addresses.map((address) => {
      return new ServerConnection({
        ...options,
        locate: () => address,
        authenticates: 'ifRequired',
        database: 0,
        validate: undefined,
        waitForReplicas: 0,
        onFailure: (error) => {
          this.#error = error;
        },
      });
    });
  }

  /**
   * @param options.waits whether Sentinels that are not connected yet are waited for
   * @throws RedisError
   */
  async locatePrimary({ waits = true } = {}): Promise<RedisAddress> {
    const answers: PrimaryAddress[] = [];
    const refusals: RedisError[] = [];
    const questions = this.#connections.map(async (connection) => {
      const answer = await withDeadline('a Sentinel', REDIS_DISCOVERY_MS, async (attempt) => {
        if (waits) await connection.whenReady(attempt);
        return this.#question(connection);
      }).catch((error: RedisError) => {
        // Why a Sentinel is not connected is known better than by the timeout.
        if (error.kind !== 'timeout') refusals.push(error);
        throw error;
      });
      answers.push(answer);
    });
    const all = Promise.allSettled(questions);
    await Promise.race([
      all,
      Promise.any(questions).then(
        () => pause(OTHERS_MS),
        () => all,
      ),
    ]);
    const [newest] = answers.toSorted((a, b) => b.epoch - a.epoch);
    if (newest !== undefined) return newest;
    const { kind, message } = refusals[0] ?? this.#error;
    throw new RedisError(kind, `no Sentinel knows the primary: ${message}`);
  }

  close(): void {
    for (const connection of this.#connections) connection.close();
  }

  async #question(connection: ServerConnection): Promise<PrimaryAddress> {
    const name = this.#target.primaryName;
    const reply = await connection.send(['SENTINEL', 'MASTER', name]);
    const fields = fieldsOf(reply);
    const host = fields.get('ip');
    const port = Number(fields.get('port'));
    const epoch = Number(fields.get('config-epoch'));
    if (typeof host === 'string' && host !== '' && port >= 1 && port <= 65_535 && epoch >= 0) {
      return { host, port, epoch };
    }
    const { address } = connection;
    const server = address === undefined ? 'a Sentinel' : describeAddress(address);
    throw new RedisError('unexpectedReply', `${server}: SENTINEL MASTER has no address`);
  }
}

/** An answer with names and values: a map, or an array of both in turn. */
function fieldsOf(reply: unknown): ReadonlyMap<unknown, unknown> {
  if (Array.isArray(reply)) {
    return new Map(reply.flatMap((name, i) => (i % 2 === 0 ? [[name, reply[i + 1]]] : [])));
  }
  return new Map(typeof reply === 'object' && reply !== null ? Object.entries(reply) : []);
}
