/** `weir policies`: lists the gateway policies that a running server applies. */

import type { ResponseOf } from '../api/operations/documentation.ts';
import { formatDuration } from '../core/duration.ts';
import { DEFAULT_RULE } from '../core/window-rules.ts';
import { CLIENT_EXIT_CODES, type Command, subcommand } from './command.ts';
import { formatCell } from './output.ts';

type Policy = ResponseOf<'ratelimits.listPolicies'>['policies'][number];

const HEADER = [
  ...['NAMESPACE', 'GATEWAY', 'IDENTIFY', 'WINDOWS', 'COST', 'MODE'],
  ...['MISSING', 'ON ERROR', 'SKIP'],
];

const list = subcommand({
  usage: '[options]',
  run: async (call) => {
    const items = call.server().listItems('ratelimits.listPolicies', 'policies');
    await call.printList(items, HEADER, policyRow);
    return undefined;
  },
});

function policyRow(policy: Policy): string[] {
  const { namespace, gateway, identify, windows, cost, shadow, missing, onError } = policy;
  const skipped = (policy.skip ?? []).map(formatCell).join(', ');
  return [
    formatCell(namespace),
    [gateway].flat().join(', '),
    identify.map(formatCell).join(' + '),
    windows.map(windowText).join(', '),
    `${cost}`,
    shadow ? 'shadow' : 'deny',
    missing,
    onError,
    skipped === '' ? '-' : skipped,
  ];
}

/** For example `100 per 1m`, or `100 per 1m gcra burst 20`. */
function windowText({
  limit,
  duration,
  algorithm = DEFAULT_RULE,
  burst,
}: Policy['windows'][number]): string {
  const rule = algorithm === DEFAULT_RULE ? '' : ` ${algorithm}`;
  const atOnce = burst === undefined ? '' : ` burst ${burst}`;
  return `${limit} per ${formatDuration(duration)}${rule}${atOnce}`;
}

export const policies: Command = {
  subcommands: { list },
  notes: `
Shows the policies that the server applies: those of the configuration file at its start, or at the
last SIGHUP. All WINDOWS must allow a request; a rule is named unless it is ${DEFAULT_RULE}.
MODE shadow counts and denies no request. MISSING is the decision for a request without a part of
its identifier, ON ERROR the one if weir fails. SKIP are requests without a check. Policies of a
namespace that the key may not read are left out.
`,
  examples: ['weir policies list --json'],
  exitCodes: CLIENT_EXIT_CODES,
};
