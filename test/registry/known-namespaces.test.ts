import { expect, test } from 'vitest';
import { NAMESPACES_MAX } from '../../src/core/constants.ts';
import { Hasher } from '../../src/core/hash.ts';
import { KnownNamespaces } from '../../src/registry/known-namespaces.ts';
import { allocateControl, Control } from '../../src/shared-memory/control.ts';

const hasher = new Hasher(Buffer.alloc(16));
const newNamespaces = (register: (name: string) => void) => {
  const stats = new Control(allocateControl(1, 1)).acceptorStats(0);
  return new KnownNamespaces(
    (name) => hasher.namespace(name),
    (row) => stats.namespaceRow(row),
    register,
  );
};

test('an acceptor creates a namespace once, without an id until it is durable', () => {
  const registered: string[] = [];
  const namespaces = newNamespaces((name) => registered.push(name));
  expect(namespaces.create('a')?.id).toBeUndefined();
  expect(namespaces.get('a')?.name).toBe('a');
  expect(registered).toEqual(['a']);
  namespaces.addRegistered([
    { id: 'rlns_a', name: 'a', statsRow: 0 },
    { id: 'rlns_b', name: 'b', statsRow: 1 },
  ]);
  expect(['a', 'b'].map((name) => namespaces.get(name)?.id)).toEqual(['rlns_a', 'rlns_b']);
});

test('an acceptor creates no more namespaces than the maximum, and removes a rejected one', () => {
  const namespaces = newNamespaces(() => {});
  const records = Array.from({ length: NAMESPACES_MAX - 1 }, (_, i) => {
    return { id: `rlns_${i}`, name: `n${i}`, statsRow: 0 };
  });
  namespaces.addRegistered(records);
  expect(namespaces.create('last')).toBeDefined();
  expect(namespaces.create('excess')).toBeUndefined();
  namespaces.removeRejected(['last']);
  expect(namespaces.get('last')).toBeUndefined();
});
