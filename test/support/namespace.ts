/** A namespace as a decision thread has it before its first check. */

import { Hasher } from '../../src/core/hash.ts';
import { type Namespace, UNRECORDED } from '../../src/core/namespace.ts';
import { newNamespaceRow } from '../../src/shared-memory/stats.ts';

export const TEST_HASH_KEY = Buffer.from('0123456789abcdef');
const hasher = new Hasher(TEST_HASH_KEY);

/** @param key see `namespaceKey` */
export function testNamespace(name: string, key = name): Namespace {
  const tries = { trieRoots: new Int32Array(0), trieVersion: 0 };
  const names = { name, key, id: undefined, isTransient: false };
  const hashState = hasher.namespace(key);
  return { ...names, hashState, decisionCounts: newNamespaceRow(), ...tries, ...UNRECORDED };
}
