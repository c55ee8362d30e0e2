/** The button that deletes a namespace, and its dialog, which says what goes with it. */

import { useState } from 'preact/hooks';
import { Confirm, useLoad } from '../common/controls.tsx';
import { formatWhole } from '../common/format.ts';
import { call } from '../common/operations.ts';
import type { Grant } from '../common/permissions.ts';
import { linkTo, navigate } from '../common/router.ts';
import { Name } from '../common/text.tsx';

interface DeleteProps {
  name: string;
  id: string;
  grant: Grant;
}

export function DeleteNamespace(props: DeleteProps) {
  const [isOpen, setOpen] = useState(false);
  return (
    <section class="danger-zone" aria-label="Deletion">
      <button type="button" class="danger" onClick={() => setOpen(true)}>
        Delete namespace
      </button>
      {isOpen && <DeleteDialog {...props} onClose={() => setOpen(false)} />}
    </section>
  );
}

function DeleteDialog({ name, id, grant, onClose }: DeleteProps & { onClose: () => void }) {
  const overrides = useLoad(async () => {
    if (!grant.may('read_override', id)) return undefined;
    const { total } = await call('ratelimits.listOverrides', { namespaceId: id, limit: 1 });
    return total;
  }, [id]);
  return (
    <Confirm
      title="Delete the namespace?"
      action="Delete namespace"
      run={async () => {
        await call('ratelimits.deleteNamespace', { namespaceId: id });
        navigate(linkTo('namespaces'));
      }}
      onClose={onClose}
    >
      <p>
        The namespace <Name text={name} /> is deleted. This cannot be undone:
      </p>
      <ul class="list">
        <li>
          {overrides.data === undefined
            ? 'Its overrides are deleted.'
            : `Its overrides are deleted: ${formatWhole(overrides.data)}.`}{' '}
          Overrides of a pattern of namespaces stay.
        </li>
        <li>Its counters are removed: a later check finds all tokens.</li>
        <li>Its figures are deleted.</li>
        <li>Permissions of keys for this namespace grant nothing any more.</li>
      </ul>
      <p>A later check with this name creates another namespace.</p>
    </Confirm>
  );
}
