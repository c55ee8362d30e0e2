/** `weir inspect`: shows the counters of an identifier on a running server. */

import { isoTime } from '../shared-memory/clock.ts';
import { CLIENT_EXIT_CODES, type Command, subcommand } from './command.ts';
import { COUNTER_OPTIONS, counterFields } from './counter-options.ts';
import { formatDuration } from './options.ts';
import { formatTable, quoted } from './output.ts';

interface Usage {
  used: number;
  remaining: number;
  reset: number;
}

interface InspectResponse {
  namespace: string;
  counters: { duration: number; limit: number; algorithms: Record<string, Usage> }[];
}

const HEADER = ['DURATION', 'ALGORITHM', 'LIMIT', 'USED', 'REMAINING', 'RESET'];

export const inspect: Command = {
  subcommands: {
    '': subcommand({
      usage: '<identifier> [options]',
      argumentNames: ['identifier'],
      options: COUNTER_OPTIONS,
      run: async (call) => {
        const fields = counterFields(call.positionals, call.values);
        const server = call.server();
        const response = await server.post<InspectResponse>('ratelimits.inspect', fields);
        let rows: string[][];
        try {
          rows = response.counters.flatMap(rowsOf);
        } catch {
          throw server.unexpectedResponseError(200);
        }
        call.print(response, () => {
          if (rows.length > 0) return formatTable(HEADER, rows).trimEnd();
          const where = `in the namespace ${quoted(response.namespace)}`;
          return `${quoted(fields.identifier)} has no counters ${where}.`;
        });
        return undefined;
      },
    }),
  },
  notes: `LIMIT is that of the last allowed check. Fixed and sliding windows share a counter; each
row shows the usage by one of them. REMAINING of gcra is for a burst of LIMIT. If the identifier
begins with -, put it at the end, after --.`,
  examples: ['weir inspect user_1', 'weir inspect user_1 --namespace email.send --duration 60s'],
  exitCodes: CLIENT_EXIT_CODES,
};

/** One row for each algorithm. */
function rowsOf({ duration, limit, algorithms }: InspectResponse['counters'][number]): string[][] {
  return Object.entries(algorithms).map(([name, { used, remaining, reset }]) => {
    const amounts = [limit, used, remaining].map(String);
    return [formatDuration(duration), name, ...amounts, isoTime(reset)];
  });
}
