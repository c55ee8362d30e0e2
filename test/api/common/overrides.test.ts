import { expect, test } from 'vitest';
import type { OperationContext } from '../../../src/api/common/operation-context.ts';
import { putOverride } from '../../../src/api/common/overrides.ts';
import { Permissions } from '../../../src/auth/permissions.ts';
import { EXACT_OVERRIDES_MAX, WILDCARD_OVERRIDES_MAX } from '../../../src/core/constants.ts';

const VALUES = { limit: 5, durationMs: 1_000, isAsync: false };

/** Puts an override where there are so many. `overrides-at-maximum.test.ts` fills a real server. */
function put(
  exact: number,
  wildcard: number,
  name: string,
  identifier: string,
  before?: object,
  ended: readonly object[] = [],
) {
  const registry = {
    overrideCounts: { exact, wildcard, block: 0 },
    namespaceByName: () => ({ id: 'rlns_1' }),
    namespaceById: () => ({ name: 'n' }),
    override: () => before,
    putOverride: (override: object) => override,
    endedOverrides: () => ended,
    removeOverride: () => {
      registry.overrideCounts = { exact: exact - 1, wildcard: wildcard - 1, block: 0 };
    },
    namespaceOf: () => 'n',
    audit: () => {},
  };
  const permissions = new Permissions(['*']);
  const gateways = { policies: () => [] };
  const known = { registry, permissions, gateways, nowMs: () => 1 };
  const context = known as unknown as OperationContext;
  const selector = { identifier, ...(identifier.includes('/') && { isCidr: true }) };
  return putOverride(context, { name, field: 'namespaceName' }, selector, VALUES).override;
}

test.each([
  ['n', 'user', EXACT_OVERRIDES_MAX, 0, 'without a wildcard and blocks'],
  ['n', 'user*', 0, WILDCARD_OVERRIDES_MAX, 'with a wildcard or a CIDR block'],
  ['n*', 'user', 0, WILDCARD_OVERRIDES_MAX, 'with a wildcard or a CIDR block'],
  ['n', '10.0.0.0/8', 0, WILDCARD_OVERRIDES_MAX, 'with a wildcard or a CIDR block'],
])(
  'the number of overrides such as %s, %s is limited',
  (name, identifier, exact, wildcard, kind) => {
    const most = Math.max(exact, wildcard);
    const message = `the maximum of ${most} overrides ${kind} is reached`;
    expect(() => put(exact, wildcard, name, identifier)).toThrow(message);
    const existing = { id: 'rlor_1', ...VALUES, limit: 4 };
    expect(put(exact, wildcard, name, identifier, existing)).toMatchObject({
      id: 'rlor_1',
      limit: 5,
    });
    // The place of one that has ended is free, also if its record is not removed yet.
    const isCidr = identifier.includes('/');
    const ended = { ...existing, scope: name, identifier, isCidr, expiresMs: 1 };
    expect(put(exact, wildcard, name, identifier, ended).id).not.toBe('rlor_1');
    expect(put(exact, wildcard, name, identifier, undefined, [ended])).toMatchObject(VALUES);
    const oneLess = [exact, wildcard].map((count) => (count > 0 ? count - 1 : 1e9));
    expect(put(oneLess[0], oneLess[1], name, identifier)).toMatchObject(VALUES);
  },
);
