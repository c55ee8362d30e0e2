/** `weir reset`: lets an identifier in again, on a running server. */

import { asksForHelp, durationOf, readOptions } from './options.ts';
import { notWeir, post } from './server.ts';

const USAGE = `weir reset <identifier>
weir reset -- <identifier, which may begin with ->

  --namespace <name>      default; a name or an id
  --duration <window>     90000 (ms), 90s, 15m, 1h, 30d: that of its checks; without it all windows
`;

/** @returns the exit code */
export async function reset(args: readonly string[]): Promise<number> {
  if (asksForHelp(args)) {
    process.stdout.write(USAGE);
    return 0;
  }
  const options = { namespace: { type: 'string' }, duration: { type: 'string' } } as const;
  const { values, positionals } = readOptions(args, options, ['identifier']);
  const { cleared } = await post<{ cleared: number }>('ratelimits.reset', {
    identifier: positionals[0],
    namespace: values.namespace,
    duration: values.duration === undefined ? undefined : durationOf('duration', values.duration),
  });
  if (!Number.isInteger(cleared)) throw notWeir(200);
  process.stdout.write(`cleared: ${cleared} ${cleared === 1 ? 'counter' : 'counters'}\n`);
  return 0;
}
