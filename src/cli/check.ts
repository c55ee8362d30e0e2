/** `weir check`: one check on a running server, with an answer for a human. */

import { systemMs } from '../time.ts';
import { asksForHelp, durationOf, integerOf, readOptions, required } from './options.ts';
import { notWeir, post } from './server.ts';

const USAGE = `weir check <identifier> --limit <tokens> --duration <window>
weir check --limit <tokens> --duration <window> -- <identifier, which may begin with ->

  --limit <tokens>        tokens in a window
  --duration <window>     90000 (ms), 90s, 15m, 1h, 30d
  --namespace <name>      default
  --cost <tokens>         1; 0 looks and changes nothing
  --async                 answer at once, deduct afterwards

Exit code 0: admitted; 1: refused; 2: no answer, or an error.
`;

interface LimitAnswer {
  success: boolean;
  limit: number;
  remaining: number;
  reset: number;
}

/** @returns the exit code */
export async function check(args: readonly string[]): Promise<number> {
  if (asksForHelp(args)) {
    process.stdout.write(USAGE);
    return 0;
  }
  const { values, positionals } = readOptions(
    args,
    {
      limit: { type: 'string' },
      duration: { type: 'string' },
      namespace: { type: 'string' },
      cost: { type: 'string' },
      async: { type: 'boolean' },
    },
    ['identifier'],
  );
  const answer = await post<LimitAnswer>('ratelimits.limit', {
    identifier: positionals[0],
    limit: integerOf('limit', required('limit', values.limit)),
    duration: durationOf('duration', required('duration', values.duration)),
    namespace: values.namespace,
    cost: values.cost === undefined ? undefined : integerOf('cost', values.cost),
    async: values.async,
  });
  const { success, remaining, limit, reset } = answer;
  const isAnswer = typeof success === 'boolean' && Number.isFinite(remaining + limit + reset);
  if (!isAnswer) throw notWeir(200);
  const seconds = Math.max(0, Math.ceil((reset - systemMs()) / 1_000));
  const outcome = success ? 'admitted' : 'refused';
  process.stdout.write(`${outcome}: ${remaining} of ${limit} left, new window in ${seconds} s\n`);
  return success ? 0 : 1;
}
