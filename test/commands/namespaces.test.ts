/** `weir namespaces` on a running server. */

import { expect, test } from 'vitest';
import { EXIT } from '../../src/core/exit.ts';
import { commandServer } from '../support/weir-command.ts';

const { weir, lines } = commandServer();

test('weir namespaces lists namespaces, and deletes one by its name or its id', async () => {
  for (const namespace of ['a b', 'other']) {
    const terms = ['--namespace', namespace, '--limit', '5', '--duration', '1h'];
    for (const identifier of ['x', 'y*']) await lines(['overrides', 'set', identifier, ...terms]);
  }
  const [first, second] = await lines(['namespaces', 'list']);
  expect([first.name, second.name]).toEqual(['a b', 'other']);
  const { code, stdout } = await weir(['namespaces', 'delete', 'a b']);
  expect([code, stdout]).toEqual([EXIT.OK, 'The namespace "a b" is deleted, with 2 overrides.\n']);
  const again = await weir(['namespaces', 'delete', 'a b']);
  expect([again.code, again.stderr]).toEqual([
    EXIT.SERVER_ERROR,
    'weir: NOT_FOUND: there is no namespace "a b"\n',
  ]);
  expect(await lines(['namespaces', 'delete', `${second.id}`])).toEqual([{ overrides: 2 }]);
  expect(await lines(['namespaces', 'list'])).toEqual([]);
});
