/** The dialogs of the actions that a list offers for an identifier. The frame shows them. */

import { Dialog, ErrorNote, useLoad } from '../common/controls.tsx';
import { formatWhole } from '../common/format.ts';
import type { IdentifierAction, Target } from '../common/identifier-actions.tsx';
import { call } from '../common/operations.ts';
import type { Grant } from '../common/permissions.ts';
import { visibleText } from '../common/visible-text.ts';
import { BlockIdentifier } from './block-dialogs.tsx';
import { EditOverride, exactOverrideOf } from './override-dialogs.tsx';
import { ResetCounters } from './reset-counters.tsx';

interface DialogsProps {
  action: IdentifierAction;
  target: Target;
  grant: Grant;
  onDone: (what: string) => void;
  onClose: () => void;
}

export function IdentifierDialog({ action, target, grant, onDone, onClose }: DialogsProps) {
  if (action === 'reset') {
    const { namespace, identifier } = target;
    const of = `${visibleText(identifier)} in ${visibleText(namespace)}`;
    const report = (cleared: number) => {
      onDone(`Counters of ${of} that were reset: ${formatWhole(cleared)}.`);
    };
    return <ResetCounters target={target} grant={grant} onDone={report} onClose={onClose} />;
  }
  const props = { target, grant, onDone, onClose };
  return action === 'block' ? <BlockIdentifier {...props} /> : <SetOverride {...props} />;
}

/** Changes the override of exactly this identifier, or adds it. */
function SetOverride({ target, grant, onDone, onClose }: Omit<DialogsProps, 'action'>) {
  const { namespace, identifier } = target;
  const known = useLoad(async () => {
    if (!grant.mayInSome('read_override') || !grant.mayInSome('read_namespace')) return undefined;
    const explanation = await call('ratelimits.explain', { namespace, identifier });
    const override = exactOverrideOf(explanation, identifier);
    return override && { ...override, namespaceName: namespace };
  }, []);
  if (known.isLoading) return null;
  if (known.error !== undefined) {
    return (
      <Dialog title="Set an override" onClose={onClose}>
        <ErrorNote error={known.error} />
      </Dialog>
    );
  }
  return (
    <EditOverride
      override={known.data}
      namespace={namespace}
      newIdentifier={identifier}
      onDone={onDone}
      onClose={onClose}
    />
  );
}
