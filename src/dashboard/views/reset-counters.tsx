/** The dialog that resets the counters of an identifier. It shows what they are now. */

import { Confirm, ErrorNote, Table, useLoad } from '../common/controls.tsx';
import { formatDuration, formatWhole } from '../common/format.ts';
import type { Target } from '../common/identifier-actions.tsx';
import { call } from '../common/operations.ts';
import type { Grant } from '../common/permissions.ts';
import { Name, Time } from '../common/text.tsx';

interface ResetProps {
  target: Target;
  grant: Grant;
  /** @param cleared counters that were removed */
  onDone: (cleared: number) => void;
  onClose: () => void;
}

export function ResetCounters({ target, grant, onDone, onClose }: ResetProps) {
  const { namespace, identifier } = target;
  return (
    <Confirm
      title="Reset the counters?"
      action="Reset counters"
      run={async () => {
        const { cleared } = await call('ratelimits.reset', { namespace, identifier });
        onDone(cleared);
      }}
      onClose={onClose}
    >
      <p>
        All counters of <Name text={identifier} /> in <Name text={namespace} /> are removed. Its
        next check finds all tokens. Reservations and leases stay.
      </p>
      {grant.mayInSome('read_namespace') && <CountersNow target={target} grant={grant} />}
    </Confirm>
  );
}

function CountersNow({ target, grant }: Pick<ResetProps, 'target' | 'grant'>) {
  const { namespace, identifier } = target;
  const counters = useLoad(() => {
    // The explanation leaves out the algorithms that no check uses.
    const mayExplain = grant.mayInSome('read_override');
    const operation = mayExplain ? 'ratelimits.explain' : 'ratelimits.inspect';
    return call(operation, { namespace, identifier });
  }, []);
  const rows = counters.data?.counters.flatMap(({ duration, limit, algorithms }) =>
    Object.entries(algorithms).flatMap(([algorithm, usage]) => {
      return usage === undefined ? [] : [{ duration, limit, algorithm, ...usage }];
    }),
  );
  return (
    <>
      <ErrorNote error={counters.error} />
      {rows?.length === 0 && <p>There are no counters now.</p>}
      {rows !== undefined && rows.length > 0 && (
        <Table caption="Now" columns={['Window', 'Used#', 'Reset']}>
          {rows.map(({ duration, algorithm, limit, used, reset }) => (
            <tr key={`${duration} ${algorithm}`}>
              <th scope="row">{`${formatDuration(duration)} ${algorithm}`}</th>
              <td class="number">{`${formatWhole(used)} of ${formatWhole(limit)}`}</td>
              <td>
                <Time ms={reset} />
              </td>
            </tr>
          ))}
        </Table>
      )}
    </>
  );
}
