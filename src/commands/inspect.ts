/** `weir inspect`: shows the counters and the live holds of an identifier on a running server. */

import { CLIENT_EXIT_CODES, type Command, subcommand } from './command.ts';
import { COUNTER_OPTIONS, counterFields } from './counter-options.ts';
import { type CounterFields, counterTable } from './counter-table.ts';
import { type HoldFields, holdTable } from './hold-table.ts';
import { quoted } from './output.ts';

interface InspectResponse {
  namespace: string;
  counters: CounterFields[];
  holds?: HoldFields;
}

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
        let table: string | undefined;
        let holds: string | undefined;
        try {
          table = counterTable(response.counters);
          holds = holdTable(response.holds);
        } catch {
          throw server.unexpectedResponseError(200);
        }
        call.print(response, () => {
          const where = `in the namespace ${quoted(response.namespace)}`;
          const counters = table ?? `${quoted(fields.identifier)} has no counters ${where}.`;
          return holds === undefined ? counters : `${counters}\n\n${holds}`;
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
