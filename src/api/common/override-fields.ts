/**
 * The fields of an override in the requests and responses of both versions. v1 has `namespaceId`
 * and `namespaceName`, v2 has `namespace`. v2 has no asynchronous overrides: one that it sets is
 * synchronous.
 */

import Type from 'typebox';
import type { OverrideUsage } from '../../analytics/usage-rows.ts';
import {
  AMOUNT_MAX,
  DURATION_MAX_MS,
  DURATION_MIN_MS,
  IDENTIFIER_MAX_CHARACTERS,
  NAMESPACE_MAX_CHARACTERS,
  WILDCARDS_PER_TEXT_MAX,
} from '../../core/constants.ts';
import { ApiError } from '../../core/errors.ts';
import { field, flag, integer, milliseconds, text } from '../../core/schema.ts';
import { isPattern } from '../../overrides/pattern.ts';
import type { Override, OverrideSelector, Registry } from '../../registry/registry.ts';
import { expiresField } from './expires.ts';
import { type NamespaceReference, parseNamespaceReference } from './namespace-reference.ts';
import type { OperationContext } from './operation-context.ts';
import { amount, flagged, idText, named, namespaceId, unixMs } from './responses.ts';

/** Of v1: a name may be a pattern. @param without what a request without a namespace gets */
export function namespaceFieldsV1(
  without = '`namespaceId` or `namespaceName` is required; the id has precedence.',
) {
  return {
    namespaceId: Type.Optional(
      field(text(1, NAMESPACE_MAX_CHARACTERS), `Id of the namespace. ${without}`),
    ),
    namespaceName: Type.Optional(
      field(
        text(1, NAMESPACE_MAX_CHARACTERS),
        'Name of the namespace, or a pattern of names with `*`. It must not begin with `rlns_`.',
      ),
    ),
  };
}

export function namespaceFieldV2() {
  return field(
    text(1, NAMESPACE_MAX_CHARACTERS),
    'Name or id of the namespace, or a pattern of names with `*`. A text that begins with ' +
      '`rlns_` is an id.',
  );
}

/** What a request sets. @param limitNote what a limit of 0 means, where it is accepted */
export function settingFields(identifierMin: number, limitMin: number, limitNote = '') {
  return {
    identifier: field(
      text(identifierMin, IDENTIFIER_MAX_CHARACTERS),
      'The identifier to which the override applies. `*` matches any sequence of characters, ' +
        `also an empty one. At most ${WILDCARDS_PER_TEXT_MAX} are accepted. There is no escape, ` +
        'and case matters.',
    ),
    limit: field(
      integer(limitMin, AMOUNT_MAX),
      `Tokens that may be used in one window, in place of the \`limit\` of a check.${limitNote}`,
    ),
    duration: field(
      milliseconds(DURATION_MIN_MS, DURATION_MAX_MS),
      'Length of the window in milliseconds, in place of the `duration` of a check.',
    ),
  };
}

export function settingOptions() {
  return {
    concurrency: Type.Optional(
      field(
        integer(0, AMOUNT_MAX),
        'Tokens that the leases of the identifier may use at once, in place of the `limit` of ' +
          '`ratelimits.acquire`. 0 denies every new lease. Without it, each acquire has its own ' +
          'limit, also if the override had one before.',
      ),
    ),
    cidr: Type.Optional(
      field(
        flag(),
        'Whether `identifier` is a CIDR block, such as `203.0.113.0/24` or `2001:db8::/32`. The ' +
          'override then applies to each identifier that is an address or a network inside of it.',
        false,
      ),
    ),
    expires: Type.Optional(
      expiresField(
        'Time at which the override ends by itself, in Unix milliseconds. It must be in the ' +
          'future. Without it, the override applies until it is deleted, also if it had an end ' +
          'before.',
      ),
    ),
  };
}

/** Which override a request means. */
export function selectorFields(identifierMin: number) {
  return {
    identifier: field(
      text(identifierMin, IDENTIFIER_MAX_CHARACTERS),
      'The identifier, pattern or CIDR block of the override, exactly as it was set.',
    ),
    cidr: Type.Optional(field(flag(), 'Whether the override was set with `cidr`.', false)),
  };
}

export function usageOption() {
  return {
    usage: Type.Optional(
      field(flag(), 'Whether the response has the field `usage` of each override.', false),
    ),
  };
}

/** In a request with both, the id has precedence. @throws ApiError (400) */
export function namespaceReferenceV1({
  namespaceId: id,
  namespaceName: name,
}: {
  namespaceId?: string;
  namespaceName?: string;
}): NamespaceReference {
  if (id !== undefined) return { id };
  if (name !== undefined) return { name, field: 'namespaceName' };
  throw new ApiError('BAD_REQUEST', '"namespaceId" or "namespaceName" is required');
}

export function namespaceReferenceV2({ namespace }: { namespace: string }): NamespaceReference {
  return parseNamespaceReference('namespace', namespace);
}

/** The selector of an override, as a request names it. */
export function selectorOf({
  identifier,
  cidr: isCidr = false,
}: {
  identifier: string;
  cidr?: boolean;
}): OverrideSelector {
  return { identifier, ...(isCidr && { isCidr }) };
}

export type OverrideValues = Pick<
  Override,
  'limit' | 'durationMs' | 'isAsync' | 'concurrency' | 'expiresMs'
>;

/** The values of an override, as a request has them. */
export function valuesOf({
  limit,
  duration: durationMs,
  concurrency,
  async: isAsync = false,
  expires,
}: {
  limit: number;
  duration: number;
  concurrency?: number;
  async?: boolean;
  expires?: number;
}): OverrideValues {
  const leases = concurrency !== undefined && { concurrency };
  const end = expires !== undefined && { expiresMs: expires };
  return { limit, durationMs, isAsync, ...leases, ...end };
}

/** An override in a response of v1. */
export function shownV1({ id, ...override }: OverrideSelector & OverrideValues & { id: string }) {
  const { isAsync } = override;
  return { id, ...selectorShown(override), ...valuesShown(override, { async: isAsync }) };
}

/** An override in a response of v2. */
export function shownV2({ id: overrideId, ...override }: Override) {
  return { overrideId, ...selectorShown(override), ...valuesShown(override, {}) };
}

function selectorShown({ identifier, isCidr }: OverrideSelector) {
  return { identifier, ...(isCidr === true && { cidr: true }) };
}

/** @param more the fields that a version has before `expires` */
function valuesShown<More>(
  { limit, durationMs, concurrency, expiresMs }: OverrideValues,
  more: More,
) {
  const leases = concurrency !== undefined && { concurrency };
  const end = expiresMs !== undefined && { expires: expiresMs };
  return { limit, duration: durationMs, ...leases, ...more, ...end };
}

/** The field `usage` of a response, for a request that asks for it. */
export function usageShown(
  { usage }: OperationContext,
  isRequested: boolean | undefined,
  { id, createdMs }: Override,
) {
  const found: OverrideUsage | undefined = isRequested === true ? usage.usageOf(id) : undefined;
  if (found === undefined) return {};
  const { applied, lastAppliedMs } = found;
  const last = lastAppliedMs > 0 && { lastAppliedAt: lastAppliedMs };
  return { usage: { applied, ...last, since: Math.max(createdMs, usage.sinceMs) } };
}

/** The namespace of an override in a list of several namespaces, as an import names it. */
export function ownerShown(registry: Registry, override: Override) {
  const namespaceName = registry.namespaceOf(override);
  // An import would read the name of a namespace that contains a star as a pattern.
  const isAmbiguous = isPattern(namespaceName) && !isPattern(override.scope);
  return isAmbiguous ? { namespaceId: override.scope } : { namespaceName };
}

/** The schema of `ownerShown`. */
export function ownerFields() {
  return {
    namespaceName: Type.Optional(
      named('Name of the namespace, or a pattern of names. Absent if `namespaceId` is set.'),
    ),
    namespaceId: Type.Optional(
      namespaceId('Id of the namespace. Only for a namespace whose name contains `*`.'),
    ),
  };
}

/** The schema of `shownV1`. */
export function overrideV1() {
  const { overrideId: id, expires, ...values } = overrideV2();
  const async = flagged('Whether the checks to which the override applies are asynchronous.');
  return { id, ...values, async, expires };
}

/** The schema of `shownV2`. */
export function overrideV2() {
  return {
    overrideId: overrideId(),
    identifier: named('Identifier, pattern or CIDR block of the override.'),
    cidr: Type.Optional(
      flagged('`true` if `identifier` is a CIDR block. Absent for identifiers and patterns.'),
    ),
    limit: amount('Tokens that may be used in one window.'),
    duration: amount('Length of the window in milliseconds.'),
    concurrency: Type.Optional(
      amount(
        'Tokens that leases may use at once. Absent if the override does not replace that limit.',
      ),
    ),
    expires: Type.Optional(
      unixMs('Time at which the override ends by itself. Absent if it has no end'),
    ),
  };
}

export function overrideId() {
  return idText('rlor', 'Id of the override. It stays the same while its values change.');
}

/** The schema of `usageShown`. */
export function overrideUsage() {
  return {
    usage: Type.Optional(
      Type.Object(
        {
          applied: Type.Integer({
            minimum: 0,
            description:
              'Number of checks and acquires to which the override applied, whether allowed or ' +
              'denied.',
          }),
          lastAppliedAt: Type.Optional(
            amount('Time of the last of them, in Unix milliseconds. Absent if there was none.'),
          ),
          since: unixMs('Time from which on they were counted'),
        },
        {
          description:
            'How often the override has applied on the machine that answers. Only if the request ' +
            'has `usage`. Absent while it cannot be read.',
        },
      ),
    ),
  };
}
