/** `weir reserve`, `weir commit` and `weir cancel` on a running server. */

import { expect, test } from 'vitest';
import { NO_RESERVATION_ID } from '../../src/api/texts/examples.ts';
import { EXIT } from '../../src/core/exit.ts';
import { commandServer, ISO_TIME } from '../support/weir-command.ts';

const { weir, lines } = commandServer();

const WINDOW = ['--limit', '10', '--duration', '30d'];
const reserve = (identifier: string, cost: string) => {
  return ['reserve', identifier, ...WINDOW, '--cost', cost, '--ttl', '1h'];
};
const END = `(at )?${ISO_TIME} \\(in \\d+ s\\)`;

test('a reservation is one line with its id and its end, and a denial one without', async () => {
  const reserved = await weir(reserve('user_1', '8'));
  expect([reserved.code, reserved.stderr]).toEqual([EXIT.OK, '']);
  const hold = `reservation rlrs_[\\w-]{22}, ends ${END}`;
  const window = `limit 10, remaining 2, resets ${END}`;
  expect(reserved.stdout).toMatch(new RegExp(`^reserved: ${window}, ${hold}\n$`));
  const denied = await weir(reserve('user_1', '3'));
  expect([denied.code, denied.stderr]).toEqual([EXIT.DENIED, '']);
  expect(denied.stdout).toMatch(new RegExp(`^denied: limit 10, remaining \\d, resets ${END}\n$`));
  expect((await weir(reserve('user_1', '11'))).stdout).toContain('never passes');
});

test('a reservation shares the counter of weir check with the same options', async () => {
  await weir(reserve('user_2', '8'));
  const check = await weir(['check', 'user_2', ...WINDOW, '--cost', '0']);
  expect(check.stdout).toContain('limit 10, remaining 2,');
});

test('a commit prints the charged and the released tokens, and again the same', async () => {
  const [{ reservationId }] = await lines(reserve('user_3', '8'));
  const args = ['commit', `${reservationId}`, '--cost', '5'];
  const text = 'The reservation has 5 charged and 3 released tokens.\n';
  expect(await weir(args)).toEqual({ code: EXIT.OK, stdout: text, stderr: '' });
  const answer = { success: true, charged: 5, released: 3, late: false };
  expect(await lines(args)).toEqual([answer]);
});

test('a cancellation prints the released tokens', async () => {
  const [{ reservationId }] = await lines(reserve('user_4', '1'));
  const cancelled = await weir(['cancel', `${reservationId}`]);
  expect(cancelled).toEqual({ code: EXIT.OK, stdout: 'Released 1 token.\n', stderr: '' });
});

test('an unknown reservation is an error of the server', async () => {
  for (const args of [['commit', '--cost', '1'], ['cancel']]) {
    const { code, stdout, stderr } = await weir([...args, NO_RESERVATION_ID]);
    const message = expect.stringMatching(/^weir: NOT_FOUND: there is no reservation .*\n$/);
    expect([code, stdout, stderr]).toEqual([EXIT.SERVER_ERROR, '', message]);
  }
});
