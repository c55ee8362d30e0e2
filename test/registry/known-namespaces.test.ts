import { expect, test } from 'vitest';
import { DELETED_NAMESPACES_MAX, NAMESPACES_MAX } from '../../src/core/constants.ts';
import { Hasher } from '../../src/core/hash.ts';
import { KnownNamespaces, type RegisteredNamespace } from '../../src/registry/known-namespaces.ts';
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
const register = (namespaces: KnownNamespaces, records: RegisteredNamespace[]) => {
  namespaces.apply({ registeredNamespaces: records });
};

test('an acceptor creates a namespace once, without an id until it is durable', () => {
  const registered: string[] = [];
  const namespaces = newNamespaces((name) => registered.push(name));
  expect(namespaces.create('a')?.id).toBeUndefined();
  expect(namespaces.get('a')?.name).toBe('a');
  expect(registered).toEqual(['a']);
  register(namespaces, [
    { id: 'rlns_a', name: 'a', key: 'a', statsRow: 0 },
    { id: 'rlns_b', name: 'b', key: 'b', statsRow: 1 },
  ]);
  expect(['a', 'b'].map((name) => namespaces.get(name)?.id)).toEqual(['rlns_a', 'rlns_b']);
});

test('an acceptor creates no more namespaces than the maximum, and removes a rejected one', () => {
  const namespaces = newNamespaces(() => {});
  const records = Array.from({ length: NAMESPACES_MAX - 1 }, (_, i) => {
    return { id: `rlns_${i}`, name: `n${i}`, key: `n${i}`, statsRow: 0 };
  });
  register(namespaces, records);
  const last = namespaces.create('last')!;
  expect(last.isTransient).toBe(false);
  expect(namespaces.create('excess')).toBeUndefined();
  namespaces.apply({ rejectedNamespaces: ['last'] });
  expect(namespaces.get('last')).toBeUndefined();
  // The namespace of a policy: the gateway replaces it when there is room.
  expect(last.isTransient).toBe(true);
});

test('an acceptor knows a name by its id that was rejected and registered in one publication', () => {
  const namespaces = newNamespaces(() => {});
  namespaces.create('a')!.decisionCounts[0] = 3;
  const [record] = [{ id: 'rlns_1', name: 'a', key: 'a', statsRow: 0 }];
  namespaces.apply({ rejectedNamespaces: ['a'], registeredNamespaces: [record] });
  expect(namespaces.get('a')).toMatchObject({ id: 'rlns_1', name: 'a' });
  expect(namespaces.byId('rlns_1')).toBe(namespaces.get('a'));
});

test('an acceptor forgets a deleted namespace, and hashes the next one of its name differently', () => {
  const namespaces = newNamespaces(() => {});
  register(namespaces, [{ id: 'rlns_1', name: 'a', key: 'a', statsRow: 0 }]);
  const deleted = namespaces.get('a')!;
  const row = deleted.decisionCounts;
  const record = { name: 'a', key: 'a', successorKey: 'rlns_1.a' };
  expect(namespaces.apply({ deletedNamespaces: [record] })).toEqual([deleted]);
  expect([namespaces.get('a'), namespaces.byId('rlns_1')]).toEqual([undefined, undefined]);
  // A check that began before counts neither in the row nor for the next namespace.
  deleted.decisionCounts[0]++;
  expect(row[0]).toBe(0);
  for (const next of [namespaces.makeUnregistered('a'), namespaces.create('a')!]) {
    expect(next.key).toBe('rlns_1.a');
    expect(next.hashState).not.toEqual(deleted.hashState);
  }
  // The message about the deletion of the first one does not remove the second.
  expect(namespaces.apply({ deletedNamespaces: [record] })).toEqual([]);
  const created = namespaces.get('a')!;
  register(namespaces, [{ id: 'rlns_2', name: 'a', key: 'rlns_1.a', statsRow: 1 }]);
  expect([namespaces.get('a'), created.id]).toEqual([created, 'rlns_2']);
});

test('an acceptor replaces a namespace that was created with another key than the durable one', () => {
  const namespaces = newNamespaces(() => {});
  const early = namespaces.create('a')!;
  register(namespaces, [{ id: 'rlns_2', name: 'a', key: 'rlns_1.a', statsRow: 0 }]);
  expect(namespaces.get('a')).not.toBe(early);
  expect(namespaces.byId('rlns_2')?.key).toBe('rlns_1.a');
});

test('an acceptor counts each decision once, however often a namespace is published', () => {
  const namespaces = newNamespaces(() => {});
  const record = { id: 'rlns_1', name: 'a', key: 'a', statsRow: 0 };
  namespaces.create('a')!.decisionCounts[0] = 3;
  for (let i = 0; i < 3; i++) register(namespaces, [record]);
  expect(namespaces.get('a')?.decisionCounts[0]).toBe(3);
});

test('an acceptor finds a namespace by two words of its hash state, and knows of its deletion', () => {
  const namespaces = newNamespaces(() => {});
  const wordsOf = (key: string) => {
    const [h0, h1] = hasher.namespace(key);
    return [h0, h1] as const;
  };
  const created = namespaces.create('a');
  expect(namespaces.byFingerprint(...wordsOf('a'))).toBe(created);
  const record = { id: 'rlns_1', name: 'a', key: 'a', statsRow: 0 };
  register(namespaces, [record, { id: 'rlns_2', name: 'b', key: 'b', statsRow: 1 }]);
  expect(namespaces.byFingerprint(...wordsOf('a'))?.id).toBe('rlns_1');
  expect(namespaces.byFingerprint(...wordsOf('b'))?.id).toBe('rlns_2');
  const [h0, h1] = wordsOf('a');
  expect(namespaces.byFingerprint(h1, h0)).toBeUndefined();
  expect(['a', 'never used'].map((name) => namespaces.isDeleted(...wordsOf(name)))).toEqual([
    false,
    false,
  ]);
  const successorKey = 'rlns_1.a';
  namespaces.apply({ deletedNamespaces: [{ name: 'a', key: 'a', successorKey }] });
  expect(namespaces.byFingerprint(...wordsOf('a'))).toBeUndefined();
  expect(namespaces.isDeleted(...wordsOf('a'))).toBe(true);
  // Its successor is another namespace. A name that is forgotten gets its first key again.
  namespaces.create('a');
  expect(namespaces.isDeleted(...wordsOf(successorKey))).toBe(false);
  expect(namespaces.byFingerprint(...wordsOf(successorKey))?.name).toBe('a');
  register(namespaces, [{ ...record, id: 'rlns_3' }]);
  expect(namespaces.isDeleted(...wordsOf('a'))).toBe(false);
  expect(namespaces.byFingerprint(...wordsOf(successorKey))).toBeUndefined();
});

test('an acceptor remembers no more deleted namespaces than the registry', () => {
  const namespaces = newNamespaces(() => {});
  const isDeleted = (number: number) => {
    const [h0, h1] = hasher.namespace(`n${number}`);
    return namespaces.isDeleted(h0, h1);
  };
  const deletedNamespaces = Array.from({ length: DELETED_NAMESPACES_MAX + 1 }, (_, i) => {
    return { name: `n${i}`, key: `n${i}`, successorKey: `rlns_${i}.n${i}` };
  });
  namespaces.apply({ deletedNamespaces });
  expect([0, 1, DELETED_NAMESPACES_MAX].map(isDeleted)).toEqual([false, true, true]);
});
