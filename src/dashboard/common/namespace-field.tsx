/** The field for the name of a namespace, which suggests those that the key may see. */

import { Field } from './controls.tsx';
import { useNamespaces } from './namespaces.ts';
import type { Grant } from './permissions.ts';

interface NamespaceFieldProps {
  grant: Grant;
  /** '' for all namespaces. */
  value: string;
  onChange: (name: string) => void;
}

export function NamespaceField({ grant, value, onChange }: NamespaceFieldProps) {
  const namespaces = useNamespaces(grant);
  return (
    <>
      <datalist id="namespaces">
        {namespaces.data?.map(({ id, name }) => (
          <option key={id} value={name} />
        ))}
      </datalist>
      <Field
        label="Namespace"
        list="namespaces"
        placeholder="all"
        value={value}
        onInput={({ currentTarget }) => onChange(currentTarget.value)}
      />
    </>
  );
}
