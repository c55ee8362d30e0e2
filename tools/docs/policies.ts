/** The table of the fields of a policy, from the schema that validates policies. */

import { IDENTITY_PARTS_MAX, POLICY_SKIPS_MAX } from '../../src/core/constants.ts';
import { GATEWAYS } from '../../src/policies/gateways.ts';
import { PolicySchema, WindowSchema } from '../../src/policies/policy.ts';
import { inlineCode, markdownTable } from './markdown.ts';

type FieldName = keyof typeof PolicySchema.properties;

/** What the table has in place of a default. */
const WITHOUT_DEFAULT: Partial<Record<FieldName, string>> = {
  gateway: 'required',
  limit: 'required without `windows`',
  duration: 'required without `windows`',
  burst: 'the limit',
};

/** Of fields that the server validates item by item. */
const ACCEPTS: Partial<Record<FieldName, string>> = {
  gateway: `${GATEWAYS.map(inlineCode).join(', ')}, or an array of different ones`,
  skip: `an array of at most ${POLICY_SKIPS_MAX} different ones`,
  identify: `one part, or an array of 1 to ${IDENTITY_PARTS_MAX} different ones`,
};

export function policyFieldsTable(): string {
  const names = Object.keys(PolicySchema.properties) as FieldName[];
  return markdownTable(['field', 'default', 'accepts', 'meaning'], names.map(fieldRow));
}

interface Annotations {
  accepts?: string;
  default?: unknown;
  description: string;
}

function fieldRow(name: FieldName): string[] {
  const annotations = PolicySchema.properties[name] as unknown as Annotations;
  const { accepts = '', default: initial, description } = annotations;
  const shown = initial === undefined ? 'none' : inlineCode(String(initial));
  const isOfWindow = name in WindowSchema.properties;
  return [
    inlineCode(name),
    WITHOUT_DEFAULT[name] ?? shown,
    ACCEPTS[name] ?? accepts,
    isOfWindow ? `${description} Each of \`windows\` has its own.` : description,
  ];
}
