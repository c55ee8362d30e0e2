/** `weir acquire`, `weir renew` and `weir release`: concurrency leases on a running server. */

import { DECISION_MEANINGS, EXIT } from '../core/exit.ts';
import { CLIENT_EXIT_CODES, type Command, subcommand } from './command.ts';
import { describeHold, parseTtl, TTL_OPTION } from './hold-options.ts';
import { parseInteger, required, requireIdentifier } from './options.ts';
import { formatCount, formatTimeFromNow } from './output.ts';
import type { ServerClient } from './server-client.ts';

interface AcquireFields {
  namespace: string | undefined;
  identifier: string;
  limit: number;
  cost?: number | undefined;
  ttl: number;
}

interface AcquireResponse {
  success: boolean;
  /** Null after a denial, and for a lease without a record. */
  leaseId: string | null;
  inUse: number;
  limit: number;
  expiresAt: number | null;
}

/** @throws StartError */
export async function acquireLease(
  server: ServerClient,
  fields: AcquireFields,
): Promise<AcquireResponse> {
  const response = await server.post<AcquireResponse>('ratelimits.acquire', { ...fields });
  const { success, inUse, limit } = response;
  if (typeof success === 'boolean' && Number.isInteger(inUse + limit)) return response;
  throw server.unexpectedResponseError(200);
}

export function describeDenial({ inUse, limit }: AcquireResponse): string {
  return `denied: in use ${inUse}, limit ${limit}`;
}

export const acquire: Command = {
  subcommands: {
    '': subcommand({
      usage: '<identifier> --limit <tokens> --ttl <duration> [options]',
      argumentNames: ['identifier'],
      options: {
        limit: { type: 'string', value: '<tokens>', help: 'tokens in use at once; at least 1' },
        ttl: TTL_OPTION,
        namespace: { type: 'string', value: '<name or id>', help: 'default: default' },
        cost: { type: 'string', value: '<tokens>', help: 'tokens of the lease; default: 1' },
        'empty-identifier': { type: 'boolean', help: 'allow "" as the identifier' },
      },
      run: async (call) => {
        const { values, positionals } = call;
        const { namespace, cost } = values;
        const response = await acquireLease(call.server(), {
          namespace,
          identifier: requireIdentifier(positionals[0], values['empty-identifier']),
          limit: parseInteger('limit', required('limit', values.limit), 1),
          cost: cost === undefined ? undefined : parseInteger('cost', cost, 1),
          ttl: parseTtl(required('ttl', values.ttl)),
        });
        const { success, leaseId, inUse, limit, expiresAt } = response;
        call.print(response, () => {
          if (!success) return describeDenial(response);
          const lease = describeHold('lease', leaseId, expiresAt);
          return `granted: in use ${inUse}, limit ${limit}, ${lease}`;
        });
        return success ? EXIT.OK : EXIT.DENIED;
      },
    }),
  },
  notes: `
A lease counts its tokens as in use until it is released, or until its ttl has passed. weir run
acquires, renews and releases a lease for a command. If the identifier begins with -, put it at the
end, after --.
`,
  examples: [
    'weir acquire tenant_1 --namespace jobs --limit 5 --ttl 30s',
    'weir acquire tenant_1 --namespace jobs --limit 5 --ttl 30s --json | jq -r .leaseId',
  ],
  exitCodes: [EXIT.OK, EXIT.DENIED, ...CLIENT_EXIT_CODES.slice(1)],
  exitMeanings: { ...DECISION_MEANINGS, [EXIT.OK]: 'granted' },
};

interface RenewResponse {
  success: boolean;
  /** Null, as all others, if the lease has ended. */
  inUse: number | null;
  limit: number | null;
  expiresAt: number | null;
}

/** @param signal ends the wait for the response. @throws StartError */
export async function renewLease(
  server: ServerClient,
  leaseId: string,
  ttl: number,
  signal?: AbortSignal,
): Promise<RenewResponse> {
  const fields = { leaseId, ttl };
  const response = await server.post<RenewResponse>('ratelimits.renew', fields, signal);
  const { success, expiresAt } = response;
  if (success === false || (success === true && Number.isInteger(expiresAt))) return response;
  throw server.unexpectedResponseError(200);
}

export const renew: Command = {
  subcommands: {
    '': subcommand({
      usage: '<leaseId> --ttl <duration>',
      argumentNames: ['leaseId'],
      options: { ttl: TTL_OPTION },
      run: async (call) => {
        const [leaseId] = call.positionals;
        const ttlMs = parseTtl(required('ttl', call.values.ttl));
        const response = await renewLease(call.server(), leaseId, ttlMs);
        const { success, inUse, limit, expiresAt } = response;
        call.print(response, () => {
          if (expiresAt === null) return 'The lease has ended, or is unknown.';
          const end = `ends at ${formatTimeFromNow(expiresAt)}`;
          return `renewed: in use ${inUse}, limit ${limit}, ${end}`;
        });
        return success ? EXIT.OK : EXIT.DENIED;
      },
    }),
  },
  notes: 'The lease then ends by itself after --ttl from now. A lease that has ended stays ended.',
  examples: ['weir renew rlls_... --ttl 30s'],
  exitCodes: [EXIT.OK, EXIT.DENIED, ...CLIENT_EXIT_CODES.slice(1)],
  exitMeanings: { [EXIT.OK]: 'renewed', [EXIT.DENIED]: 'the lease has ended, or is unknown' },
};

/** @returns the tokens that were in use until now. @throws StartError */
export async function releaseLease(
  server: ServerClient,
  leaseId: string,
): Promise<{ released: number }> {
  const response = await server.post<{ released: number }>('ratelimits.release', { leaseId });
  if (Number.isInteger(response.released)) return response;
  throw server.unexpectedResponseError(200);
}

export const release: Command = {
  subcommands: {
    '': subcommand({
      usage: '<leaseId>',
      argumentNames: ['leaseId'],
      run: async (call) => {
        const [leaseId] = call.positionals;
        const response = await releaseLease(call.server(), leaseId);
        const { released } = response;
        call.print(response, () => {
          if (released === 0) return 'The lease had ended before.';
          return `Released ${formatCount(released, 'token')}.`;
        });
        return undefined;
      },
    }),
  },
  examples: ['weir release rlls_...'],
  exitCodes: CLIENT_EXIT_CODES,
};
