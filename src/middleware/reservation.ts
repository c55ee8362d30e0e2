/**
 * Reservations of weir, for work whose cost is known only when it has ended. A reservation that is
 * neither committed nor cancelled ends after its `ttl`, as `WEIR_ON_HOLD_EXPIRY` of weir says.
 */

import { requireTtl } from './concurrency.ts';
import { requireOption } from './options.ts';
import { isCount, isText, readFields } from './values.ts';
import type { WeirClient } from './weir-client.ts';

export interface ReserveRequest {
  /** Of the client, not empty. */
  identifier: string;
  /** Tokens to reserve: the most that the work may use. */
  cost: number;
  /** The longest time that the work may take, 1000 to 86400000 ms. */
  ttl: number;
}

/** What a commit or a cancellation did. Without a record of the reservation it has no field. */
export interface Settlement {
  /** Tokens that count for the reservation after a commit. */
  charged?: number;
  /** Tokens that have returned. */
  released?: number;
  /** Of a commit: whether the reservation had ended by itself before. */
  late?: boolean;
  /** Why weir has not done it. The reservation ends after its `ttl`. */
  error?: Error;
}

/** How to end a reservation. Only the first of all calls changes something; none rejects. */
export interface ReservationEnd {
  /** Null if nothing is reserved, or weir has no record of it: there is nothing to commit. */
  reservationId: string | null;
  /**
   * Corrects the reserved tokens to the cost of the work. It may be above the reserved cost.
   * @throws TypeError for an invalid cost
   */
  commit(cost: number): Promise<Settlement>;
  /** Returns all reserved tokens: the work was not done. */
  cancel(): Promise<Settlement>;
}

/** @throws TypeError for an invalid request */
export function requireReserveRequest(value: unknown): void {
  const request = readFields('reserve', value, ['identifier', 'cost', 'ttl']);
  const { identifier, cost, ttl } = request as Partial<ReserveRequest>;
  requireOption(isText(identifier), 'identifier', 'a text that is not empty', identifier);
  requireOption(isCount(cost, 0), 'cost', 'an integer from 0', cost);
  requireTtl('ttl', ttl);
}

/** @param reservationId null without a record */
export function reservationEnd(client: WeirClient, reservationId: string | null): ReservationEnd {
  const end = async (operation: string, fields: object): Promise<Settlement> => {
    if (reservationId === null) return {};
    try {
      return await client.callRepeatedly(operation, { reservationId, ...fields }, readSettlement);
    } catch (error) {
      return { error: error as Error };
    }
  };
  return {
    reservationId,
    commit: async (cost) => {
      requireOption(isCount(cost, 0), 'cost', 'an integer from 0', cost);
      return end('v1/ratelimits.commit', { cost });
    },
    cancel: () => end('v1/ratelimits.cancel', {}),
  };
}

function readSettlement(body: unknown): Settlement | undefined {
  const settlement = body as Settlement;
  return isCount(settlement.released, 0) ? settlement : undefined;
}
