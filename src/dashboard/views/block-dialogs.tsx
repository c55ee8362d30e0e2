/** The dialogs that block an identifier for a time, and that end its block. */

import { useState } from 'preact/hooks';
import {
  Confirm,
  Dialog,
  ErrorNote,
  Field,
  Note,
  Select,
  useAction,
  useLoad,
} from '../common/controls.tsx';
import { formatDuration, formatWhole } from '../common/format.ts';
import type { Target } from '../common/identifier-actions.tsx';
import { call, type Response } from '../common/operations.ts';
import type { Grant } from '../common/permissions.ts';
import { serverNow } from '../common/server-clock.ts';
import { Name, Time } from '../common/text.tsx';
import { visibleText } from '../common/visible-text.ts';

interface BlockProps {
  target: Target;
  grant: Grant;
  onDone: (what: string) => void;
  onClose: () => void;
}

const MINUTE_MS = 60_000;
const HOUR_MS = 60 * MINUTE_MS;
const TIMES = [15 * MINUTE_MS, HOUR_MS, 6 * HOUR_MS, 24 * HOUR_MS, 7 * 24 * HOUR_MS];
const REASON_MAX = 200;

type Explanation = Response<'ratelimits.explain'>;

/** What applies to an identifier, where the key may know it. */
function useExplanation({ namespace, identifier }: Target, grant: Grant) {
  return useLoad(async () => {
    const isPermitted = grant.mayInSome('read_namespace') && grant.mayInSome('read_override');
    return isPermitted ? call('ratelimits.explain', { namespace, identifier }) : undefined;
  }, []);
}

function describe({ namespace, identifier }: Target): string {
  return `${visibleText(identifier)} in ${visibleText(namespace)}`;
}

export function BlockIdentifier({ target, grant, onDone, onClose }: BlockProps) {
  const [time, setTime] = useState(String(HOUR_MS));
  const [reason, setReason] = useState('');
  const known = useExplanation(target, grant);
  const saving = useAction(async () => {
    const { namespace, identifier } = target;
    const expires = serverNow() + Number(time);
    const why = reason === '' ? {} : { reason };
    await call('ratelimits.setBlock', { namespaceName: namespace, identifier, expires, ...why });
    onDone(`${describe(target)} is blocked for ${formatDuration(Number(time))}.`);
  });
  const ending = useAction(async () => onDone(await endBlock(target)));
  const block = known.data?.block;
  return (
    <Dialog title="Block the identifier" onClose={onClose}>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          void saving.run();
        }}
      >
        <p>
          Every check and every new lease of <Name text={target.identifier} /> in{' '}
          <Name text={target.namespace} /> is denied, from the next one on. No override is changed.
        </p>
        {block !== undefined && (
          <Note kind="info">
            It is blocked until <Time ms={block.expires} />. This changes the end and the reason.
          </Note>
        )}
        <div class="fields">
          <Select
            label="For"
            value={time}
            onChoose={setTime}
            options={TIMES.map((ms) => [String(ms), formatDuration(ms)] as const)}
          />
          <Field
            label="Reason"
            maxLength={REASON_MAX}
            value={reason}
            onInput={({ currentTarget }) => setReason(currentTarget.value)}
            hint="For the audit log and for whoever explains the denials"
          />
        </div>
        {known.data !== undefined && (
          <p>
            After the block, <Next explanation={known.data} />
          </p>
        )}
        <ErrorNote error={saving.error ?? ending.error ?? known.error} />
        <div class="buttons">
          <button type="submit" class="danger" disabled={saving.isRunning}>
            Block identifier
          </button>
          {block !== undefined && grant.mayInSome('delete_override') && (
            <button type="button" disabled={saving.isRunning} onClick={() => ending.run()}>
              End the block
            </button>
          )}
          <button type="button" onClick={onClose}>
            Cancel
          </button>
        </div>
      </form>
    </Dialog>
  );
}

async function endBlock({ namespace, identifier }: Target): Promise<string> {
  await call('ratelimits.deleteBlock', { namespaceName: namespace, identifier });
  return `${describe({ namespace, identifier })} is not blocked any more.`;
}

export function EndBlock({ target, grant, onDone, onClose }: BlockProps) {
  const known = useExplanation(target, grant);
  return (
    <Confirm
      title="End the block?"
      action="End block"
      run={async () => onDone(await endBlock(target))}
      onClose={onClose}
    >
      <p>
        <Name text={target.identifier} /> is blocked in <Name text={target.namespace} />.
      </p>
      <ErrorNote error={known.error} />
      {known.data !== undefined && (
        <p>
          From the next check on, <Next explanation={known.data} />
        </p>
      )}
    </Confirm>
  );
}

/** What applies to an identifier that is not blocked any more. */
function Next({ explanation }: { explanation: Explanation }) {
  const { override, otherOverrides, policy } = explanation;
  const next = override ?? otherOverrides[0];
  if (next === undefined) {
    return policy === undefined
      ? 'each check has the limit that it sends.'
      : 'requests through the gateway have the limit of its policy.';
  }
  return (
    <>
      the override of <Name text={next.identifier} /> in <Name text={next.namespace} />{' '}
      {`applies: limit ${formatWhole(next.limit)}, window ${formatDuration(next.duration)}.`}
    </>
  );
}
