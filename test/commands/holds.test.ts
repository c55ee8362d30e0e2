/** `weir holds end` on a running server. */

import { expect, test } from 'vitest';
import { EXIT } from '../../src/core/exit.ts';
import { commandServer } from '../support/weir-command.ts';

const { weir, lines } = commandServer();
const NAMESPACE = ['--namespace', 'jobs'];

/** The handle in the table that an operator sees. */
async function handleOf(identifier: string): Promise<string> {
  const { stdout } = await weir(['inspect', identifier, ...NAMESPACE]);
  return /^(?:lease|reservation) +(\S+)/m.exec(stdout)![1];
}

test('weir holds end ends the hold that weir inspect shows, once', async () => {
  const limit = ['--limit', '9', '--cost', '3', '--ttl', '1h'];
  await weir(['acquire', 'tenant_1', ...NAMESPACE, ...limit]);
  await weir(['reserve', 'tenant_2', ...NAMESPACE, ...limit, '--duration', '30d']);
  const [lease, reservation] = [await handleOf('tenant_1'), await handleOf('tenant_2')];
  const ended = await weir(['holds', 'end', 'tenant_1', lease, ...NAMESPACE]);
  const stdout = `The lease ${lease} has ended. Released 3 tokens.\n`;
  expect(ended).toEqual({ code: EXIT.OK, stdout, stderr: '' });
  const command = ['holds', 'end', 'tenant_2', reservation, ...NAMESPACE];
  expect(await lines(command)).toEqual([{ kind: 'reservation', released: 3 }]);
  const again = await weir(command);
  const stderr = `weir: NOT_FOUND: "tenant_2" has no live reservation or lease with the handle "${reservation}"\n`;
  expect(again).toEqual({ code: EXIT.SERVER_ERROR, stdout: '', stderr });
});
